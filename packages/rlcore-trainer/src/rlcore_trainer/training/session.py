"""Shared trainer logic: load, resume, log and save."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rlcore.runs.directory import last_checkpoint
from rlcore.wording import counted

from rlcore_trainer.config import EarlyStop
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategy import Strategy
from rlcore_trainer.learner.trained_policy import OptimiserSettings, TrainedPolicy
from rlcore_trainer.policy.policy import Policy, TokenPolicy
from rlcore_trainer.training import checkpoint
from rlcore_trainer.training.best_step import score
from rlcore_trainer.training.checkpoint import Checkpoints, Progress
from rlcore_trainer.training.divergence import require_finite, require_finite_tensors
from rlcore_trainer.training.start import starting_policy
from rlcore_trainer.training.sync_check import fixed_prompt

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


class Settings(OptimiserSettings, Protocol):
    """The keys of ``[trainer]`` shared by all trainers with an optimiser."""

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether activations are recomputed in the backward pass."""
        ...

    @property
    def early_stop(self) -> EarlyStop:
        """When to end the run before its last step."""
        ...


class Resumable(Protocol):
    """A trainer whose state is stored in checkpoints."""

    def state(self) -> Mapping[str, Any]:
        """Return the trainer's own state as tensors and numbers, without policy and optimiser."""
        ...

    def collection(self) -> Mapping[str, Any]:
        """Return the data position as plain JSON values; empty if it follows from the step."""
        ...


class TrainingSession:
    """The policy, strategy and checkpoints of a new or resumed run.

    Attributes:
        run: the run
        strategy: the strategy of the run
        ranks: the processes of the run; all but the main one only carry out calls
        policy: the policy to train
        trained: the policy with its optimiser
        checkpoints: checkpoints of this run; None if another process writes them or the run has no directory
        progress: the last completed step and the best step
        restored: the `Resumable.state` stored in the checkpoint; None for a new run
        collection: the `Resumable.collection` stored in the checkpoint; empty for a new run
    """

    def __init__(self, run: RunSession, settings: Settings, *, dropout: bool = False) -> None:
        """Load the policy from the model or from the checkpoint.

        Args:
            run: the run
            settings: the optimiser settings
            dropout: whether to apply the adapter's dropout

        Raises:
            UserError: the model or the checkpoint cannot be used.
        """
        self.run, self._settings = run, settings
        self.strategy: Strategy = run.load("strategy", run.config.strategy.id)(run.options("strategy"))
        keep = run.config.checkpoint.keep
        self.checkpoints = Checkpoints(run.directory.path / "checkpoints", keep=keep) if run.directory else None
        device = self.strategy.device(run.config.model.device)
        self.ranks = Ranks(self.strategy.processes, lambda: run.stop_requested)
        folder: Path = self.strategy.processes.from_main(run.model_folder)
        self.progress = Progress()
        self.restored: Mapping[str, Any] | None = None
        self.collection: Mapping[str, Any] = {}
        if run.resume_from is not None:
            read = self.checkpoints.resume if self.checkpoints else checkpoint.read
            self.progress, self.restored, self.collection = read(run.resume_from, map_location=device)
        self._saved_step = None if run.resume_from is None else self.progress.step
        self.policy: Policy = starting_policy(run, folder, device=device, dropout=dropout)
        self.policy.version = self.progress.updates
        if settings.gradient_checkpointing:
            self.policy.recompute_activations()
        self.trained = TrainedPolicy(self.policy, self.strategy, settings, progress=run.progress)
        if self.restored is not None:
            self.trained.restore(self.restored)

    @property
    def resumed(self) -> bool:
        """Whether the run continues from a checkpoint."""
        return self.restored is not None

    @property
    def kept(self) -> Checkpoints | None:
        """The run's checkpoints, also in a process that does not write them."""
        run = self.run
        if self.checkpoints is None and run.resume_from is not None:
            return Checkpoints(run.resume_from.parent, keep=run.config.checkpoint.keep)
        return self.checkpoints

    def introduce(self, lines: Iterable[str]) -> None:
        """Log a description of the policy, followed by the trainer's lines."""
        for line in (*self.policy.description(), *lines):
            self.run.say(line)

    def stopping(self) -> bool:
        """Return whether a process of the run received a signal to stop."""
        return self.ranks.stopping()

    def steps(self, last: int) -> Iterator[int]:
        """Yield the remaining steps until a stop is requested."""
        for step in range(self.progress.step + 1, last + 1):
            if self.stopping() or self._stops_early():
                return
            yield step

    def _stops_early(self) -> bool:
        early, progress = self._settings.early_stop, self.progress
        if not early.patience or progress.stale < early.patience:
            return False
        name = early.metric or "the metric of the best checkpoint"
        measured = counted(progress.stale, "measurement")
        self.run.say(f"ended     early after step {progress.step}: {name} has not improved in {measured}")
        return True

    def judge(self, step: int, metrics: Mapping[str, float], *, default: Sequence[str]) -> None:
        """Mark a step as the best if its evaluation is at least as good as that of the best step so far.

        Args:
            step: the last completed step
            metrics: the metrics of its evaluation
            default: the metrics that decide if ``checkpoint.best.metric`` is not set, most important first
        """
        found = score(metrics, self.run.config.checkpoint.best, default)
        if found is not None and (self.progress.best_step is None or found >= self.progress.best_score):
            self.advance(step, best_step=step, best_score=found)

    def watch(self, metrics: Mapping[str, float], *, default: str) -> None:
        """Count the measurements since the metric of ``trainer.early_stop`` improved.

        Args:
            metrics: the metrics of the last completed step
            default: the metric that is used if the configuration names none
        """
        early, best = self._settings.early_stop, self.run.config.checkpoint.best
        found = score(metrics, early if early.metric else best, [default])
        if not early.patience or found is None:
            return
        improved = self.progress.stop_score is None or found[0] > self.progress.stop_score + early.least_change
        changes = {"stop_score": found[0], "stale": 0} if improved else {"stale": self.progress.stale + 1}
        self.progress = replace(self.progress, **changes)

    def advance(self, step: int, **best: Any) -> None:
        """Mark a step as completed, with ``best_step`` and related values if it is the best."""
        self.progress = replace(self.progress, step=step, updates=self.policy.version, **best)

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint of this run; None if there is none, or in a process that does not write them."""
        return last_checkpoint(self.run.directory.path) if self.run.directory else None

    def require_finite(self, numbers: Mapping[str, float], when: str, *, unchanged: Resumable | None = None) -> None:
        """Stop the run if a number of a step is NaN or infinite.

        Args:
            numbers: values by name
            when: the step, for the message
            unchanged: the trainer, if it and the policy are still those of the last completed step, which is then saved

        Raises:
            DivergenceError: a number is not finite.
        """
        if all(map(math.isfinite, numbers.values())):
            return
        if unchanged is not None and self.progress.updates:
            self.save_unsaved(unchanged)
        require_finite(numbers, when, kept=self.last_checkpoint)

    def require_finite_policy(self, when: str, **state: object) -> None:
        """Stop the run if a trained weight, a tensor of ``state`` or a log-probability is NaN or infinite.

        Weights can be finite and too large for a forward pass, so one of a policy over tokens is tried on fixed tokens,
        and on the token whose embedding has the largest number: only the embeddings of tokens in the data are updated.

        Raises:
            DivergenceError: a number is not finite.
        """
        trained = {name: one for name, one in self.policy.module.named_parameters() if one.requires_grad}
        require_finite_tensors({"weights": trained, **state}, when, kept=self.last_checkpoint)
        if not isinstance(self.policy, TokenPolicy):
            return
        prompt = fixed_prompt(self.policy)
        placeholders = {prompt.token_ids[span.offset] for span in prompt.media}
        first, *others = (token for token in prompt.token_ids if token not in placeholders)
        logprobs_T = self.policy.continuation(prompt, [first, self.policy.largest_token(), first, *others[:2]])
        worst = next((one for one in logprobs_T.tolist() if not math.isfinite(one)), 0.0)
        require_finite({"log-probability of a fixed token": worst}, when, kept=self.last_checkpoint)

    def save(self, trainer: Resumable) -> None:
        """Write a checkpoint of the last completed step, if the run has a directory.

        Raises:
            DivergenceError: see `require_finite_policy`.
            UserError: the checkpoint cannot be written.
        """
        state = {**self.trained.state(), **trainer.state()}
        self.require_finite_policy(f"step {self.progress.step}", optimizer=state)
        if self.checkpoints is None:
            return
        path = self.checkpoints.save(self.progress, self.policy, state, collection=trainer.collection())
        self._saved_step = self.progress.step
        self.run.checkpoint_saved(self.progress.step, path)

    def save_unsaved(self, trainer: Resumable) -> None:
        """Save the last completed step unless it has been saved already."""
        if self._saved_step != self.progress.step:
            self.save(trainer)

    def save_when_due(self, trainer: Resumable, step: int) -> None:
        """Save if a checkpoint is due after this step or the step is the best so far."""
        every = self.run.config.checkpoint.every
        if (every and step % every == 0) or self.progress.best_step == step:
            self.save(trainer)
