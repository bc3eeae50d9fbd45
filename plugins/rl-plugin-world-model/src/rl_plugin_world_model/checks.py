"""Conflicting settings of a phase. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.checks import Finding, failure, failure_of, unread, warning
from rlcore.errors import UserError
from rlcore.runs.directory import last_checkpoint

from rl_plugin_world_model.config import ExplorerConfig, NetworkConfig, PhaseConfig, StudentConfig

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


def check(run: RunSession) -> Iterator[Finding]:
    """Find settings that contradict each other, and unusual ones."""
    config: PhaseConfig = run.options("trainer")
    if run.config.model.path != "builtin:world-model":
        fix = 'model.path="builtin:world-model", with sizes in [model.builder]'
        yield failure("model.path", "a phase trains its own networks", fix)
        return
    network: NetworkConfig = run.options("builder") or NetworkConfig()
    coordinates = 3 * network.patch**2
    if network.prediction == "latents" and network.codes > coordinates:
        reason = f"a patch of {network.patch} x {network.patch} pixels has {coordinates} coordinates"
        yield failure("model.builder.codes", reason, f"model.builder.codes={coordinates}", value=str(network.codes))
    if run.resume_from is None:
        yield from _unread(run)
    if isinstance(config, ExplorerConfig):
        yield from _of_explorer(run, config, network)
    if config.batch_size % config.num_envs and config.num_envs % config.batch_size:
        yield warning("trainer.batch_size is no multiple of trainer.num_envs, so environments take turns in batches")


def _unread(run: RunSession) -> Iterator[Finding]:
    """Values of keys that the phases do not read, which would otherwise have no effect."""
    for name, read in READ.items():
        table = run.resolved.options.get(name) if name in ("algorithm", "sampler") else getattr(run.config, name)
        keys = type(table).model_fields.keys() - read if table is not None else set()
        if run.config.evaluation.every == 0 and name == "evaluation":
            keys = keys - {"every"}
        fix = f"remove it; {OWN[name]} are the keys of the phases" if name in OWN else "remove it"
        yield from unread(run.resolved, name, sorted(keys), "the phases do not read it", fix)
    if any(one.rewards for one in run.resolved.environments):
        fix = "remove it; trainer.terms are the rewards of the explorer"
        yield failure("reward", "the phases do not read [[reward]]", fix)


def _of_explorer(run: RunSession, config: ExplorerConfig, network: NetworkConfig) -> Iterator[Finding]:
    from rlcore_trainer.algorithms.config import AlgorithmConfig
    from rlcore_trainer.algorithms.configured import advantage_traits

    algorithm: AlgorithmConfig = run.options("algorithm")
    if not advantage_traits(run.load("advantage", algorithm.advantage.id)).needs_critic:
        reason = "the explorer needs an advantage estimator that reads the values of its critic"
        yield failure("algorithm.advantage", reason, "algorithm.advantage=gae")
    for index, term in enumerate(config.terms):
        key = f"trainer.terms.{index}.id"
        try:
            run.registry.load("reward_term", term.id)
        except UserError as error:
            yield failure_of(error, key)
        frozen = isinstance(config, StudentConfig) and not config.train_world_model
        if term.id == "learning_progress" and frozen:
            reason = "the term learning_progress needs a world model that learns"
            yield failure(key, reason, "trainer.train_world_model=true, or remove the term")
    for key in ("teacher", "student"):
        path = getattr(config, key, None)
        if path is not None and run.resume_from is None and not (Path(path).expanduser() / "model.pt").is_file():
            folder = Path(path).expanduser()
            found = "no such folder" if not folder.is_dir() else "no model.pt in it"
            newest = _newest(folder)
            fix = f"trainer.{key}={newest}" if newest else "give …/checkpoint-N of a run of phase 1, 2 or 3"
            yield failure(f"trainer.{key}", f"it needs a checkpoint of a phase: {found}", fix)
    if network.prediction == "latents" and any(term.id == "wm_uncertainty" for term in config.terms):
        yield warning("the term wm_uncertainty is 0 for latents; it needs model.builder.prediction=tokens")


def _newest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run of a phase; None if the folder is no such run."""
    last = last_checkpoint(run) if run.is_dir() else None
    return run / f"checkpoint-{int(last.name)}" if last is not None and (last / "model.pt").is_file() else None
