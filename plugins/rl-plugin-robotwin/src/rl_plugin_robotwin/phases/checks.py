"""Conflicting settings of a phase. Does not import torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import UserError
from rlcore.runs.directory import last_checkpoint

from rl_plugin_robotwin.phases.config import ExplorerConfig, NetworkConfig, PhaseConfig, StudentConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

READ = {
    "algorithm": {"advantage", "loss"},
    "model": {"path", "builder", "device"},
    "rollout": {"environment_timeout_s"},
    "sampler": {"id"},
    "evaluation": set[str](),
    "checkpoint": {"every", "keep"},
}
"""Keys of other tables that the phases read."""
OWN = {
    "algorithm": "trainer.entropy_weight and trainer.terms",
    "sampler": "trainer.num_envs, trainer.vector and trainer.steps_per_episode",
    "evaluation": "trainer.evaluate_every and trainer.held_out",
}
"""The phases' own keys for the subject of a table."""


def check(run: RunSession) -> list[str]:
    """Raise `UserError` for settings that contradict each other, and return notes about unusual ones."""
    config: PhaseConfig = run.options("trainer")
    if run.config.model.path != "builtin:robotwin-networks":
        raise UserError(
            "a phase trains its own networks",
            found=run.config.model.path,
            where=run.resolved.origin(("model", "path")),
            fix='model.path="builtin:robotwin-networks", with sizes in [model.builder]',
        )
    network: NetworkConfig = run.options("builder") or NetworkConfig()
    if network.prediction == "latents" and network.codes > 3 * network.patch**2:
        raise UserError(
            f"a patch of {network.patch} x {network.patch} pixels has {3 * network.patch**2} coordinates",
            found=f"model.builder.codes={network.codes}",
            where=run.resolved.origin(("model", "builder", "codes")),
            fix=f"model.builder.codes={3 * network.patch**2}",
        )
    if run.resume_from is None:
        _check_unread(run)
    notes = []
    if isinstance(config, ExplorerConfig):
        notes += _check_explorer(run, config, network)
    if config.batch_size % config.num_envs and config.num_envs % config.batch_size:
        notes.append("trainer.batch_size is no multiple of trainer.num_envs, so environments take turns in batches")
    return notes


def _check_unread(run: RunSession) -> None:
    """Refuse values of keys that the phases do not read, which would otherwise have no effect."""
    for name, read in READ.items():
        table = run.resolved.options.get(name) if name in ("algorithm", "sampler") else getattr(run.config, name)
        for key, field in type(table).model_fields.items() if table is not None else ():
            value, plain = getattr(table, key), field.get_default(call_default_factory=True)
            if key in read or value == plain or (name, key, value) == ("evaluation", "every", 0):
                continue
            keys = f"; {OWN[name]} are the keys of the phases" if name in OWN else ""
            below = (origin for path, origin in run.resolved.origins.items() if path[:2] == (name, key))
            where = next(below, run.resolved.origin((name, key)))
            raise UserError(f"the phases do not read {name}.{key}", where=where, fix=f"remove it{keys}")
    if any(one.rewards for one in run.resolved.environments):
        raise UserError(
            "the phases do not read [[reward]]",
            where=run.resolved.origin(("reward",)),
            fix="remove it; trainer.terms are the rewards of the explorer",
        )


def _check_explorer(run: RunSession, config: ExplorerConfig, network: NetworkConfig) -> list[str]:
    from rlcore_trainer.algorithms.config import AlgorithmConfig
    from rlcore_trainer.algorithms.configured import advantage_traits

    algorithm: AlgorithmConfig = run.options("algorithm")
    if not advantage_traits(run.load("advantage", algorithm.advantage.id)).needs_critic:
        raise UserError(
            "the explorer needs an advantage estimator that reads the values of its critic",
            found=algorithm.advantage.id,
            where=run.resolved.origin(("algorithm", "advantage", "id")),
            fix="algorithm.advantage=gae",
        )
    for index, term in enumerate(config.terms):
        try:
            run.registry.load("reward_term", term.id)
        except UserError as error:
            where = run.resolved.origin(("trainer", "terms", str(index), "id"))
            raise UserError(error.message, found=error.found, where=where, fix=error.fix) from error
        frozen = isinstance(config, StudentConfig) and not config.train_world_model
        if term.id == "learning_progress" and frozen:
            raise UserError(
                "the term learning_progress needs a world model that learns",
                where=run.resolved.origin(("trainer", "terms", str(index), "id")),
                fix="trainer.train_world_model=true, or remove the term",
            )
    notes = []
    for key in ("teacher", "student"):
        path = getattr(config, key, None)
        if path is not None and run.resume_from is None and not (Path(path).expanduser() / "model.pt").is_file():
            folder = Path(path).expanduser()
            found = "no such folder" if not folder.is_dir() else "no model.pt in it"
            newest = _newest(folder)
            raise UserError(
                f"trainer.{key} needs a checkpoint of a phase",
                found=f"{path or 'an empty name'}: {found}",
                where=run.resolved.origin(("trainer", key)),
                fix=f"trainer.{key}={newest}" if newest else "give …/checkpoint-N of a run of phase 1, 2 or 3",
            )
    if network.prediction == "latents" and any(term.id == "wm_uncertainty" for term in config.terms):
        notes.append("the term wm_uncertainty is 0 for latents; it needs model.builder.prediction=tokens")
    return notes


def _newest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run of a phase; None if the folder is no such run."""
    last = last_checkpoint(run) if run.is_dir() else None
    return run / f"checkpoint-{int(last.name)}" if last is not None and (last / "model.pt").is_file() else None
