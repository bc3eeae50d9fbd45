"""Find settings that a resumed run cannot change. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.checks import Finding, failure_of
from rlcore.errors import UserError
from rlcore.json_files import read_json
from rlcore.runs.directory import config_layer

from rlcore_trainer.algorithms.config import KlConfig
from rlcore_trainer.config import WarmupConfig
from rlcore_trainer.learner.critic_config import HEAD_WEIGHTS, CriticConfig, another_critic

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def check(run: RunSession, critic: CriticConfig, kl: KlConfig) -> Iterator[Finding]:
    """Find settings that conflict with the checkpoint of a resumed run."""
    if run.resume_from is None:
        return
    if critic.model is not None and (was_head := _was_head(run.resume_from)) is not None:
        before = configuration_before(run.resume_from).get("critic", {}).get("model", critic.model)
        moved = before not in ("copy", "head") and not Path(before).expanduser().exists()
        if was_head != (critic.model == "head") or (before != critic.model and not moved):
            yield failure_of(another_critic(critic.model, was_head=was_head), "critic.model")
    warmup = run.resolved.options.get("warmup")
    warmed_up = isinstance(warmup, WarmupConfig) and warmup.steps > 0
    folder = run.resume_from.parent
    needs_copy = kl.coefficient and kl.reference is None and warmed_up and not _in_warm_up(run.resume_from)
    if needs_copy and not (folder / "reference").is_dir():
        yield failure_of(no_reference(folder), "algorithm.kl.coefficient")


def _in_warm_up(checkpoint: Path) -> bool:
    """Return whether a checkpoint is of an unfinished warm-up, after which the reference is copied."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return read_json(checkpoint / "trainer.json")["progress"]["warmup"] is not None
    return False


def configuration_before(checkpoint: Path) -> Mapping[str, Any]:
    """Return the configuration recorded for the run of a checkpoint; empty if there is none."""
    run = checkpoint.parent.parent
    return config_layer(run).tree if (run / "config.toml").is_file() else {}


def no_reference(checkpoints: Path | None) -> UserError:
    """Return the error for a missing copy of the reference policy. The fix suggests the oldest checkpoint."""
    folders = checkpoints.glob("[0-9]*/model") if checkpoints is not None else ()
    oldest = min(folders, key=lambda path: int(path.parent.name), default=None)
    near = f", such as a copy of {oldest}, which the run may delete later" if oldest is not None else ""
    return UserError(
        "the KL term needs the policy saved after the warm-up as its reference",
        found="no saved copy, because kl.coefficient was 0 when the run started",
        where="algorithm.kl.coefficient",
        fix=f"algorithm.kl.reference=FOLDER{near}",
    )


def _was_head(checkpoint: Path) -> bool | None:
    """Return whether the critic of a checkpoint is a value head; None if there is none or it cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return set(read_json(checkpoint / "trainer.json")["state"]["updates"]["critic"]["weights"]) == HEAD_WEIGHTS
    return None
