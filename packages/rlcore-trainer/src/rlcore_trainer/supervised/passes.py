"""Passes over stored examples: steps, evaluations and checkpoints, whatever an example is."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from rlcore.console.wording import counted
from rlcore.episodes.evaluation import tasks_to_evaluate
from rlcore.errors import EngineError, UserError
from rlcore.runs.machine import PhaseMemory
from rlcore.types import Task

from rlcore_trainer.batching.data_order import Cursor
from rlcore_trainer.checkpoints.start import starting_policy
from rlcore_trainer.config import OfflineConfig
from rlcore_trainer.controller.build import rollouts, training_session
from rlcore_trainer.controller.rollout_metrics import evaluation_metrics
from rlcore_trainer.controller.rollouts import Rollouts
from rlcore_trainer.controller.schedule import learning_rate
from rlcore_trainer.controller.session import require_measured
from rlcore_trainer.learner.learner import Learner
from rlcore_trainer.policy.policy import Policy, TokenPolicy
from rlcore_trainer.supervised.data import Examples, next_batch, steps_of_epoch

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

DECIDING = "evaluation/loss"
"""The metric that decides the best step by default."""


class OfflineTrainer(ABC):
    """Trains on stored examples, and keeps the step with the smallest loss on held-out ones.

    All randomness is keyed by the run's seed and the step or epoch, so a resumed run produces the same results as an
    uninterrupted one.

    Attributes:
        session: policy, processes and checkpoints
        data: the examples, and how much the run trains
    """

    EXAMPLE: ClassVar[str]
    """An example, for messages."""

    def __init__(self, run: RunSession, *, load: Callable[..., Policy] = starting_policy) -> None:
        """Load the model, and start the engine if the run has rollouts. A subclass calls `_prepare`.

        Raises:
            UserError: the model cannot be used.
        """
        self._run = run
        self._config: OfflineConfig = run.options("trainer")
        self.session, self._restored = training_session(run, self._config, dropout=True, load=load)
        self.session.save_state_of(self)
        self._learner = Learner(self.session.ranks, self._config.max_tokens_per_batch)
        self.data: Examples[Any]
        self._cursor = Cursor()
        self._tasks: Sequence[Task] = ()
        self._rollouts: Rollouts | None = None
        self._memory = PhaseMemory(run.config.model.device)

    def _prepare(self, data: Examples[Any]) -> None:
        """Take the stored position in the data, and start the engine. Called when the data has been read."""
        run, self.data = self._run, data
        self._cursor = self._resumed(self._restored.collection if self._restored is not None else {})
        if self._config.tries_tasks:
            self._tasks = tasks_to_evaluate(run.config, run.usable_tasks("evaluation"))
            self._rollouts = rollouts(run, self.session)

    def train(self) -> Mapping[str, float]:
        """Train until the last step or until a stop is requested, and return the last metrics."""
        with self._rollouts or nullcontext(), self.session.ranks as ranks, self.session:
            if not ranks.is_main:
                ranks.serve()
                return {}
            try:
                with self._memory:
                    return self._train()
            except EngineError:
                if self.session.progress.step:
                    self.session.save_unsaved()
                raise

    def state(self) -> Mapping[str, Any]:
        """Return nothing: the policy and its optimiser are the whole state."""
        return {}

    def collection(self) -> Mapping[str, Any]:
        """Return the position in the data, and the number of examples, to notice when the data has changed."""
        cursor = self._cursor
        return {"epoch": cursor.epoch, "position": cursor.position, f"{self.EXAMPLE}s": len(self.data.train)}

    def _resumed(self, collection: Mapping[str, Any]) -> Cursor:
        """Return the stored position. If the data has changed, a new epoch begins."""
        if not collection:
            return Cursor()
        if collection[f"{self.EXAMPLE}s"] != len(self.data.train):
            return Cursor(epoch=collection["epoch"] + 1)
        return Cursor(epoch=collection["epoch"], position=collection["position"])

    def _train(self) -> Mapping[str, float]:
        run, session, every, steps = self._run, self.session, self._run.config.evaluation.every, self.data.steps
        metrics: dict[str, float] = {}
        if self._rollouts is not None:
            self._rollouts.sync(0)
        session.introduce(self._introduction())
        if not session.resumed and (metrics := self._evaluate(0)):
            run.log(0, metrics)
        for step in session.steps(steps):
            started = time.perf_counter()
            self._memory.take()
            metrics = self._step(step)
            metrics |= {"time/step_s": time.perf_counter() - started, "memory/step_gib": self._memory.take()}
            session.advance(step)
            if every and (step % every == 0 or step == steps):
                metrics |= self._evaluate(step)
            session.watch(metrics, default=DECIDING)
            run.log(step, metrics)
            session.save_when_due(step)
        # Save the last step, also after a stop.
        session.save_unsaved()
        return metrics

    def _token_policy(self) -> TokenPolicy:
        policy = self.session.policy
        if not isinstance(policy, TokenPolicy):
            raise UserError(
                f"training on {self.EXAMPLE}s needs a language model",
                found="an environment with the actions of a control policy",
                where=self._run.resolved.origin(("environment", "id")),
                fix="trainer.id=policy-gradient with warmup.steps=100 imitates recorded episodes",
            )
        return policy

    def _introduction(self) -> Iterator[str]:
        data = self.data
        yield from self._described_data()
        epochs = data.steps / steps_of_epoch(len(data.train), self._config.per_step)
        warm = f", {data.warmup_steps} of them for warm-up" if data.warmup_steps else ""
        length = f"{counted(data.steps, 'update')}{warm}, {counted(epochs, 'epoch')}"
        yield f"steps     {length}, {self._config.schedule} schedule"
        for note in data.notes:
            yield f"note      {note}"

    def _step(self, step: int) -> dict[str, float]:
        config, seed, count = self._config, self._run.config.seed, len(self.data.train)
        members, after = next_batch(self._cursor, examples=count, per_step=config.per_step, seed=seed)
        rate = learning_rate(
            step,
            steps=self.data.steps,
            peak=config.learning_rate,
            warmup_steps=self.data.warmup_steps,
            schedule=config.schedule,
        )
        self._learner.seed(seed, "supervised", "dropout", step)
        metrics, updated = self._update(members, rate)
        numbers = {"loss": metrics["loss"], "gradient norm": metrics["gradient_norm"]}
        self.session.require_finite(numbers, f"step {step}", unchanged=not updated)
        self.session.policy.version += 1
        self._cursor = after
        return metrics | {
            "learning_rate": rate,
            f"{self.EXAMPLE}s": float(len(members)),
            "data/epoch": after.epoch + after.position / count,
            "data/unused": float(self.data.unused),
            "updates": 1.0,
        }

    def _evaluate(self, step: int) -> dict[str, float]:
        """Evaluate the held-out examples and, if configured, the evaluation tasks. Does not affect training."""
        started, session = time.perf_counter(), self.session
        metrics = self._held_out()
        if DECIDING in metrics:
            session.require_finite({"evaluation loss": metrics[DECIDING]}, f"step {step}")
        if self._rollouts is not None and self._tasks:
            metrics |= self._try_tasks(self._rollouts, step)
        if metrics:
            require_measured(metrics, self._run.config.checkpoint.best)
            if step:
                session.judge(step, metrics, default=[DECIDING])
            metrics["time/evaluation_s"] = time.perf_counter() - started
            metrics["memory/evaluation_gib"] = self._memory.take()
        return metrics

    def _try_tasks(self, rollouts: Rollouts, step: int) -> dict[str, float]:
        rollouts.sync(step)
        groups = rollouts.evaluate(step, self._tasks)
        calls = [len(message.tool_calls) for g in groups for t in g.trajectories for message in t.messages]
        tried = sum(len(group.trajectories) for group in groups)
        return {
            **evaluation_metrics(groups, success=self._run.config.evaluation.success),
            "evaluation/tool_calls": sum(calls) / tried,
        }

    @abstractmethod
    def _described_data(self) -> Iterator[str]:
        """Lines about the data, for the log."""

    @abstractmethod
    def _update(self, members: Sequence[int], rate: float) -> tuple[dict[str, float], bool]:
        """Update the policy on these examples.

        Returns:
            Metrics, with ``loss`` and ``gradient_norm``, and whether the weights were updated.
        """

    @abstractmethod
    def _held_out(self) -> dict[str, float]:
        """Return the metrics of the held-out examples; empty without any."""
