"""The supervised trainer: fine-tune on conversations and select the best checkpoint on held-out ones."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from rlcore.console.wording import counted
from rlcore.episodes.evaluation import tasks_to_evaluate
from rlcore.errors import EngineError, UserError
from rlcore.types import Task

from rlcore_trainer.batching.data_order import Cursor
from rlcore_trainer.config import SupervisedConfig
from rlcore_trainer.controller.build import rollouts, training_session
from rlcore_trainer.controller.rollout_metrics import evaluation_metrics
from rlcore_trainer.controller.rollouts import Rollouts
from rlcore_trainer.controller.schedule import learning_rate
from rlcore_trainer.controller.session import require_measured
from rlcore_trainer.learner.learner import Learner, offer_training
from rlcore_trainer.policy.policy import TokenPolicy
from rlcore_trainer.supervised.data import next_batch, read_conversations, steps_of_epoch

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


DECIDING = "evaluation/loss"
"""The metric that decides the best step by default."""


class SupervisedTrainer:
    """Minimises the mean negative log-likelihood of the assistant's tokens in a run's conversations.

    The best checkpoint is the one with the smallest loss on the evaluation conversations. All randomness is keyed by
    the run's seed and the step or epoch, so a resumed run produces the same results as an uninterrupted one.

    Attributes:
        session: policy, processes and checkpoints
        train_sequences: the training sequences
        evaluation_sequences: the sequences that select the best checkpoint
    """

    def __init__(self, run: RunSession) -> None:
        """Load the model, encode the conversations, and start the engine if the run has rollouts.

        Raises:
            UserError: the model or the data cannot be used.
        """
        self._run = run
        self._config: SupervisedConfig = run.options("trainer")
        self.session, restored = training_session(run, self._config, dropout=True)
        self.session.save_state_of(self)
        offer_training(self.session.ranks, self.session.trained)
        self._learner = Learner(self.session.ranks, self._config.max_tokens_per_batch)
        self._data = read_conversations(run, self._config, self._token_policy())
        self.train_sequences = self._data.train
        self._cursor = self._resumed(restored.collection if restored is not None else {})
        self.evaluation_sequences = self._data.evaluation
        self._tasks: Sequence[Task] = (
            tasks_to_evaluate(run.config, run.usable_tasks("evaluation")) if self._config.rollouts else []
        )
        self._rollouts = rollouts(run, self.session) if self._config.rollouts else None

    def train(self) -> Mapping[str, float]:
        """Train until the last step or until a stop is requested, and return the last metrics."""
        with self._rollouts or nullcontext(), self.session.ranks as ranks, self.session:
            if not ranks.is_main:
                ranks.serve()
                return {}
            try:
                return self._imitate()
            except EngineError:
                if self.session.progress.step:
                    self.session.save_unsaved()
                raise

    def state(self) -> Mapping[str, Any]:
        """Return nothing: the policy and its optimiser are the whole state."""
        return {}

    def collection(self) -> Mapping[str, Any]:
        """Return the position in the conversations, and their number, to notice when the data has changed."""
        cursor = self._cursor
        return {"epoch": cursor.epoch, "position": cursor.position, "conversations": len(self.train_sequences)}

    def _resumed(self, collection: Mapping[str, Any]) -> Cursor:
        """Return the stored position. If the data has changed, a new epoch begins."""
        if not collection:
            return Cursor()
        if collection["conversations"] != len(self.train_sequences):
            return Cursor(epoch=collection["epoch"] + 1)
        return Cursor(epoch=collection["epoch"], position=collection["position"])

    def _imitate(self) -> Mapping[str, float]:
        run, session, every, steps = self._run, self.session, self._run.config.evaluation.every, self._data.steps
        metrics: dict[str, float] = {}
        if self._rollouts is not None:
            self._rollouts.sync(0)
        session.introduce(self._introduction())
        if not session.resumed and (metrics := self._evaluate(0)):
            run.log(0, metrics)
        for step in session.steps(steps):
            started = time.perf_counter()
            metrics = self._update(step)
            metrics["time/step_s"] = time.perf_counter() - started
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
                "supervised training on conversations needs a language model",
                found="an environment with the actions of a control policy",
                where=self._run.resolved.origin(("environment", "id")),
                fix="trainer.id=policy-gradient with warmup.steps=100 imitates recorded episodes",
            )
        return policy

    def _introduction(self) -> Iterator[str]:
        data = self._data
        trained, tokens = sum(one.trained for one in data.train), sum(len(one.token_ids) for one in data.train)
        conversations = counted(len(data.train), "conversation")
        yield f"data      {conversations}, {counted(tokens, 'token')}, {trained:,} of them trained"
        if data.evaluation:
            tokens = sum(one.trained for one in data.evaluation)
            yield f"held out  {counted(len(data.evaluation), 'conversation')}, {counted(tokens, 'trained token')}"
        epochs = data.steps / steps_of_epoch(len(data.train), self._config.conversations_per_step)
        warm = f", {data.warmup_steps} of them for warm-up" if data.warmup_steps else ""
        length = f"{counted(data.steps, 'update')}{warm}, {counted(epochs, 'epoch')}"
        yield f"steps     {length}, {self._config.schedule} schedule"
        for note in data.notes:
            yield f"note      {note}"

    # One step

    def _update(self, step: int) -> dict[str, float]:
        config, seed = self._config, self._run.config.seed
        count = len(self.train_sequences)
        members, after = next_batch(
            self._cursor, conversations=count, per_step=config.conversations_per_step, seed=seed
        )
        batch = [self.train_sequences[i] for i in members]
        rate = learning_rate(
            step,
            steps=self._data.steps,
            peak=config.learning_rate,
            warmup_steps=self._data.warmup_steps,
            schedule=config.schedule,
        )
        self._learner.seed(seed, "supervised", "dropout", step)
        loss, norm, updated = self._learner.imitate(
            batch, learning_rate=rate, max_gradient_norm=config.max_gradient_norm
        )
        self.session.require_finite({"loss": loss, "gradient norm": norm}, f"step {step}", unchanged=not updated)
        self.session.policy.version += 1
        self._cursor = after
        return {
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rate,
            "tokens/trained": float(sum(sequence.trained for sequence in batch)),
            "conversations": float(len(batch)),
            "data/epoch": after.epoch + after.position / count,
            "data/unused": float(self._data.unused),
            "updates": 1.0,
        }

    def _evaluate(self, step: int) -> dict[str, float]:
        """Evaluate the held-out conversations and, if configured, the evaluation tasks. Does not affect training."""
        started, session = time.perf_counter(), self.session
        metrics: dict[str, float] = {}
        if self.evaluation_sequences:
            loss = self._learner.mean_loss(self.evaluation_sequences)
            session.require_finite({"evaluation loss": loss}, f"step {step}")
            metrics |= {"evaluation/loss": loss, "evaluation/perplexity": _perplexity(loss)}
        if self._rollouts is not None and self._tasks:
            metrics |= self._try_tasks(self._rollouts, step)
        if metrics:
            require_measured(metrics, self._run.config.checkpoint.best)
            if step:
                session.judge(step, metrics, default=[DECIDING])
            metrics["time/evaluation_s"] = time.perf_counter() - started
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


def _perplexity(loss: float) -> float:
    """Return ``exp(loss)``, or infinity on overflow."""
    return math.exp(loss) if loss < 700 else math.inf
