"""A dry run: everything that a run does before its first step, without starting anything or writing files."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rlcore.models.folder import BUILTIN
from rlcore.models.shape import shape_of_name
from rlcore.runs.directory import check_runs
from rlcore.runs.machine import size_text
from rlcore.runs.output import Output
from rlcore.session.memory import MemoryEstimate, estimate_memory
from rlcore.session.session import RunSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The result of a dry run in which nothing was refused."""

    estimate: MemoryEstimate | None
    """The expected memory; None if it is not known."""
    verdict: str
    """One line."""

    def lines(self) -> list[str]:
        """The verdict and the estimate."""
        return [f"verdict   {self.verdict}", *(self.estimate.lines() if self.estimate else [])]


def rehearse(run: RunSession) -> Rehearsal:
    """Load what a run loads, and create its trainer, without starting an engine outside of this process.

    Args:
        run: a run that passed `rlcore.session.checks.check_run`

    Raises:
        RlcoreError: as the run would.
    """
    trial = RunSession(run.plan, run.registry, output=Output(sys.stderr), dataset=run.dataset, trial=True)
    try:
        return _rehearse(trial)
    finally:
        trial.discard()


def _rehearse(trial: RunSession) -> Rehearsal:
    config, registry = trial.config, trial.registry
    if trial.resume_from is None:
        check_runs(trial.resolved)
    trainer = registry.load("trainer", config.trainer.id)
    if config.model.path.startswith(BUILTIN) and trial.trainer_spec.memory is None:
        trainer(trial)  # it may create its model itself, and does not say what it needs
        return Rehearsal(estimate=None, verdict=_ready(trial))
    folder = trial.model_here()
    model = folder or shape_of_name(config.model.path)
    estimate = estimate_memory(trial, model) if model is not None else None
    if estimate is not None and not estimate.fits:
        _tell_sandbox(trial)
        found = f"needs about {size_text(estimate.total)} of memory, and there are {size_text(estimate.available or 0)}"
        return Rehearsal(estimate=estimate, verdict=f"too large for this machine: {found}; the model was not loaded")
    if folder is None:
        _tell_sandbox(trial)
        name = config.model.path
        return Rehearsal(
            estimate=estimate, verdict=f"ready, except for the model {name}, which the run downloads and then checks"
        )
    trainer(trial)
    return Rehearsal(estimate=estimate, verdict=_ready(trial))


def _tell_sandbox(trial: RunSession) -> None:
    """Print the sandbox as the sampler does, which a dry run without the model does not create."""
    if trial.samples and trial.runs_code:
        trial.say(f"sandbox   {trial.sandbox_choice.line()}")


def _ready(trial: RunSession) -> str:
    if trial.samples and (started := trial.engine_spec.starts):
        return f"ready; not checked: the start of {started}"
    return "ready: settings, data, model and trainer were loaded and checked"
