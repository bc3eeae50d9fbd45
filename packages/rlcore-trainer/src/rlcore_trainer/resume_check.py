"""What a run that goes on cannot change, found before anything of it changes. Imports torch only to read a critic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.config.messages import Problem
from rlcore.errors import UserError
from rlcore.run_directory import config_layer

from rlcore_trainer.algorithm_config import KlConfig
from rlcore_trainer.config import CriticConfig

if TYPE_CHECKING:
    from rlcore.run import Run

HEAD_WEIGHTS = {"weight", "bias"}
"""What a checkpoint holds of a critic that is a head on the policy's own layers."""


def problems(run: Run, critic: CriticConfig, kl: KlConfig) -> Iterator[Problem]:
    """What the checkpoint that a run goes on from rules out."""
    if run.resume_from is None:
        return

    def problem(path: str, value: object, error: UserError) -> Problem:
        origin = run.resolved.origin(tuple(path.split(".")))
        reason = f"{error.message}: {error.found}\nfix: {error.mend}"
        return Problem(kind="bad value", path=path, value=str(value), origin=origin, reason=reason)

    if critic.model is not None:
        was_head = _was_head(run.resume_from)
        if was_head is not None and was_head != (critic.model == "head"):
            yield problem("critic.model", critic.model, another_critic(critic.model, was_head=was_head))
    warmed_up = getattr(run.resolved.options.get("warmup"), "steps", 0) > 0
    folder = run.resume_from.parent
    if kl.coefficient and kl.reference is None and warmed_up and not (folder / "reference").is_dir():
        yield problem("algorithm.kl.coefficient", kl.coefficient, no_reference(folder))


def configuration_before(checkpoint: Path) -> Mapping[str, Any]:
    """The tables that the run of a checkpoint was left with; none where nothing says them."""
    run = checkpoint.parent.parent
    return config_layer(run).tree if (run / "config.toml").is_file() else {}


def another_critic(asked: str, *, was_head: bool, found: str = "a model of its own") -> UserError:
    """That a critic cannot go on from one of another kind, or ``found``."""
    return UserError(
        f"critic.model={asked} cannot go on from the critic of this checkpoint",
        found="a head on the policy's own layers" if was_head else found,
        where="critic.model",
        mend="critic.model=head" if was_head else "the critic.model that the checkpoint was written with",
    )


def no_reference(checkpoints: Path | None) -> UserError:
    """That a KL term begins after a warm-up of which no copy was kept; the oldest checkpoint is nearest to it."""
    folders = checkpoints.glob("[0-9]*/model") if checkpoints is not None else ()
    oldest = min(folders, key=lambda path: int(path.parent.name), default=None)
    near = f", such as a copy of {oldest}, which the run itself may remove later" if oldest is not None else ""
    return UserError(
        "the KL term is measured from the policy as it was after the warm-up",
        found="no copy of it: the term had no weight when the run started",
        where="algorithm.kl.coefficient",
        mend=f"algorithm.kl.reference=FOLDER{near}",
    )


def _was_head(checkpoint: Path) -> bool | None:
    """Whether the critic of a checkpoint is a head; None where it has none, or cannot be read, which is told later."""
    import pickle

    import torch

    try:
        state = torch.load(checkpoint / "optimiser.pt", map_location="cpu", weights_only=True, mmap=True)
        return set(state["updates"]["critic"]["weights"]) == HEAD_WEIGHTS
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError):
        return None
