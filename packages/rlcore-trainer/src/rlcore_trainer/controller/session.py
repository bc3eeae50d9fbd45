"""The completed steps of a run: the best one, an early end, checkpoints, and the end of a run that diverges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rlcore.config.schema import MetricChoice
from rlcore.console.wording import counted
from rlcore.errors import UserError, did_you_mean
from rlcore.runs.directory import last_checkpoint

from rlcore_trainer.checkpoints.checkpoint import Checkpoints, Progress, write_part
from rlcore_trainer.config import EarlyStop
from rlcore_trainer.controller.divergence import diverged, require_finite
from rlcore_trainer.controller.report import Report
from rlcore_trainer.controller.sync_check import fixed_prompt
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.metrics import direction_of
from rlcore_trainer.policy.finite import first_non_finite
from rlcore_trainer.policy.policy import TokenPolicy

EVALUATION = "evaluation/"


class Resumable(Protocol):
    """A trainer whose state is stored in checkpoints."""

    def state(self) -> Mapping[str, Any]:
        """Return the trainer's own state as tensors and numbers, without policy and optimiser."""
        ...

    def collection(self) -> Mapping[str, Any]:
        """Return the position in the data as plain JSON values; empty before the first step."""
        ...


class TrainingSession:
    """The completed steps of a run, and their checkpoints.

    As a context manager, it waits at its end until the last checkpoint is complete.

    Attributes:
        trained: the policy with its optimiser
        policy: the policy to train
        ranks: the processes of the run; all but the main one only carry out calls
        checkpoints: checkpoints of this run; None if another process writes them or the run has no directory
        progress: the last completed step and the best step
        resumed: whether the run continues from a checkpoint of reinforcement or supervised learning
    """

    def __init__(
        self,
        trained: TrainedPolicy,
        ranks: Ranks,
        report: Report,
        *,
        checkpoints: Checkpoints | None = None,
        resumed: Progress | None = None,
        save_every: int = 0,
        best: MetricChoice | None = None,
        early_stop: EarlyStop | None = None,
    ) -> None:
        """Continue from ``resumed``, or start a new run.

        Args:
            trained: the policy with its optimiser
            ranks: the processes of the run
            report: shows the steps
            checkpoints: where to save; None saves nothing
            resumed: progress of the checkpoint to continue from
            save_every: steps between checkpoints; 0 saves only the best step and the last one
            best: the metric that decides the best step
            early_stop: when to end the run before its last step
        """
        self.trained, self.policy, self.ranks, self._report = trained, trained.policy, ranks, report
        self.checkpoints, self._every = checkpoints, save_every
        self.resumed = resumed is not None and resumed.warmup is None
        self._best, self._early_stop = best or MetricChoice(), early_stop or EarlyStop()
        self.progress = resumed or Progress()
        self._saved = None if resumed is None else (resumed.step, resumed.warmup)
        """Step and warm-up updates of the last checkpoint."""
        self._saving: tuple[int, Future[Path]] | None = None
        """Step of a checkpoint that is not known to be complete, and its folder when it is."""
        self.policy.version = self.progress.updates
        self._trainer: Resumable | None = None
        ranks.offer(write=self._write, write_reference=self._write_reference, defect=self._defect)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._finish_saving()

    def save_state_of(self, trainer: Resumable) -> None:
        """Store the state of a trainer in the checkpoints. Each process has a trainer."""
        self._trainer = trainer

    @property
    def saves(self) -> bool:
        """Whether checkpoints are written at intervals."""
        return self._every > 0

    def introduce(self, lines: Iterable[str]) -> None:
        """Log a description of the policy, followed by the trainer's lines."""
        for line in (*self.policy.description(), *lines):
            self._report.say(line)

    def stopping(self) -> bool:
        """Return whether a process of the run received a signal to stop."""
        return self.ranks.stopping()

    def steps(self, last: int) -> Iterator[int]:
        """Yield the remaining steps until a stop is requested."""
        for step in range(self.progress.step + 1, last + 1):
            if self.stopping() or self._stops_early():
                return
            if self._saving is not None and self._saving[1].done():
                self._finish_saving()
            yield step

    def _stops_early(self) -> bool:
        early, progress = self._early_stop, self.progress
        if not early.patience or progress.stale < early.patience:
            return False
        name = early.metric or "the metric of the best checkpoint"
        measured = counted(progress.stale, "measurement")
        self._report.say(f"ended     early after step {progress.step}: {name} has not improved in {measured}")
        return True

    def judge(self, step: int, metrics: Mapping[str, float], *, default: Sequence[str]) -> None:
        """Mark a step as the best if its evaluation is at least as good as that of the best step so far.

        Args:
            step: the last completed step
            metrics: the metrics of its evaluation
            default: the metrics that decide if ``checkpoint.best.metric`` is not set, most important first
        """
        found = score(metrics, self._best, default)
        if found is not None and (self.progress.best_step is None or found >= self.progress.best_score):
            self.advance(step, best_step=step, best_score=found)

    def watch(self, metrics: Mapping[str, float], *, default: str) -> None:
        """Count the measurements since the metric of ``trainer.early_stop`` improved.

        Args:
            metrics: the metrics of the last completed step
            default: the metric that is used if the configuration names none
        """
        early, best = self._early_stop, self._best
        found = score(metrics, early if early.metric else best, [default])
        if not early.patience or found is None:
            return
        improved = self.progress.stop_score is None or found[0] > self.progress.stop_score + early.least_change
        changes = {"stop_score": found[0], "stale": 0} if improved else {"stale": self.progress.stale + 1}
        self.progress = replace(self.progress, **changes)

    def advance(self, step: int, **changes: Any) -> None:
        """Mark a step as completed, with further changes of the progress, such as ``best_step`` if it is the best."""
        self.progress = replace(self.progress, step=step, updates=self.policy.version, **changes)

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint of this run; None if there is none, or in a process that does not write them."""
        self._finish_saving()
        return last_checkpoint(self.checkpoints.folder.parent) if self.checkpoints else None

    def require_finite(self, numbers: Mapping[str, float], when: str, *, unchanged: bool = False) -> None:
        """Stop the run if a number of a step is NaN or infinite.

        Args:
            numbers: values by name
            when: the step, for the message
            unchanged: whether policy and trainer are still those of the last completed step, which is then saved

        Raises:
            DivergenceError: a number is not finite.
        """
        if all(map(math.isfinite, numbers.values())):
            return
        if unchanged and self.progress.updates:
            self.save_unsaved()
        require_finite(numbers, when, kept=self.last_checkpoint)

    def require_finite_policy(self, when: str) -> None:
        """Stop the run if a trained weight, a tensor of the state or a log-probability is NaN or infinite.

        Weights can be finite and too large for a forward pass, so one of a policy over tokens is tried on fixed tokens,
        and on the token whose embedding has the largest number: only the embeddings of tokens in the data are updated.

        Raises:
            DivergenceError: a number is not finite.
        """
        for defect in self._where_needed("defect"):
            if defect is not None:
                raise diverged(f"{defect} at {when}", kept=self.last_checkpoint)

    def _defect(self) -> str | None:
        """Return what is not finite in the part of this process; None if nothing is."""
        trained = {name: one for name, one in self.policy.module.named_parameters() if one.requires_grad}
        name = first_non_finite({"weights": trained, "optimizer": self._state()})
        worst = 0.0
        if isinstance(self.policy, TokenPolicy):
            prompt = fixed_prompt(self.policy)
            placeholders = {prompt.token_ids[span.offset] for span in prompt.media}
            first, *others = (token for token in prompt.token_ids if token not in placeholders)
            logprobs_T = self.policy.continuation(prompt, [first, self.policy.largest_token(), first, *others[:2]])
            worst = next((one for one in logprobs_T.tolist() if not math.isfinite(one)), 0.0)
        if name is not None:
            return f"{name} contains NaN or infinity"
        return None if math.isfinite(worst) else f"the log-probability of a fixed token is {worst}"

    def _state(self) -> Mapping[str, Any]:
        """Return the state of optimiser and trainer in this process."""
        return {**self.trained.state(), **(self._trainer.state() if self._trainer is not None else {})}

    def _write(self, folder: Path) -> None:
        """Write the part of this process of a checkpoint."""
        write_part(folder, self.policy, self._state(), main=self.ranks.is_main)

    def _write_reference(self, folder: Path) -> None:
        self.policy.save(folder)

    def _where_needed(self, name: str, *arguments: Any) -> list[Any]:
        """Call a function in all processes if each has a part of the weights, or else in this one."""
        if self.trained.strategy.shards:
            return self.ranks.call_all(name, *arguments, separate=True)
        return [getattr(self, f"_{name}")(*arguments)]

    def save_reference(self) -> None:
        """Save the policy as the reference of the KL term for a resumed run, if the run has a directory."""
        if self.checkpoints is not None:
            self.checkpoints.save_reference(partial(self._where_needed, "write_reference"))

    def save(self) -> None:
        """Write a checkpoint of the last completed step, if the run has a directory; see `Checkpoints.save`.

        Raises:
            DivergenceError: see `require_finite_policy`.
            UserError: this checkpoint or the one before cannot be written.
        """
        self.require_finite_policy(f"step {self.progress.step}")
        if self.checkpoints is None:
            return
        self._finish_saving()
        completed = self.checkpoints.save(
            self.progress,
            self._state(),
            partial(self._where_needed, "write"),
            collection=self._trainer.collection() if self._trainer is not None else None,
        )
        self._saving = self.progress.step, completed
        self._saved = (self.progress.step, self.progress.warmup)

    def _finish_saving(self) -> None:
        """Wait until the last checkpoint is complete, and report it.

        Raises:
            UserError: it cannot be written.
        """
        if self._saving is not None:
            (step, completed), self._saving = self._saving, None
            self._report.checkpoint_saved(step, completed.result())

    def save_unsaved(self) -> None:
        """Save the last completed step unless it has been saved already."""
        if self._saved != (self.progress.step, self.progress.warmup):
            self.save()

    def save_when_due(self, step: int) -> None:
        """Save if a checkpoint is due after this step or the step is the best so far."""
        if (self._every and step % self._every == 0) or self.progress.best_step == step:
            self.save()


def score(metrics: Mapping[str, float], choice: MetricChoice, default: Sequence[str]) -> tuple[float, ...] | None:
    """Return a score that is higher for a better step; None if a metric is missing or not finite.

    Args:
        metrics: the metrics of the step
        choice: the metric of the configuration
        default: the metrics that decide, most important first, if the configuration names none
    """
    names = [choice.metric] if choice.metric else default
    values = [metrics.get(name, math.nan) for name in names]
    signs = [1.0 if (choice.direction or direction_of(name)) == "max" else -1.0 for name in names]
    found = tuple(sign * value for sign, value in zip(signs, values, strict=True))
    return found if found and all(map(math.isfinite, found)) else None


def require_measured(metrics: Mapping[str, float], choice: MetricChoice) -> None:
    """Check at the first evaluation that the metric that decides the best step exists.

    Raises:
        UserError: it does not; the message lists the metrics that do.
    """
    name = choice.metric
    if name is not None and name not in metrics:
        raise UserError(
            f"the evaluation has no metric {name!r}",
            found=", ".join(sorted(one for one in metrics if one.startswith(EVALUATION))) or "no metrics",
            where="checkpoint.best.metric",
            fix=did_you_mean(name, metrics) or "set checkpoint.best.metric to one of them",
        )
