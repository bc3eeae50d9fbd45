"""The supervised trainer: imitate conversations, look at held-out ones, keep the best."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from rlcore.contracts import Executor
from rlcore.errors import EngineError, UserError
from rlcore.evaluation import evaluation_request
from rlcore.types import Task, derive_seed
from rlcore.wording import counted

from rlcore_trainer import checkpoint
from rlcore_trainer.checkpoint import Checkpoints, Progress
from rlcore_trainer.lora import description, has_adapter
from rlcore_trainer.model import PolicyWeights
from rlcore_trainer.packing import Sequence as Tokens
from rlcore_trainer.rollout_metrics import evaluation_metrics
from rlcore_trainer.schedule import learning_rate
from rlcore_trainer.start import starting_policy
from rlcore_trainer.strategies.single import SingleProcess
from rlcore_trainer.supervised_config import SupervisedConfig
from rlcore_trainer.supervised_data import (
    batch_of_step,
    encode,
    evaluation_conversations,
    hold_out,
    shared,
    steps_of_epoch,
    training_conversations,
)
from rlcore_trainer.supervised_loss import supervised_gradient, total_loss
from rlcore_trainer.sync_check import compare, prove

if TYPE_CHECKING:
    from rlcore.run import Run


class SupervisedTrainer:
    """Minimises the mean negative log-likelihood of the assistant's tokens in a run's conversations.

    The best checkpoint is the one with the smallest loss on the evaluation conversations. Everything random is keyed by
    the run's seed and the step or epoch, so a run that is continued from a checkpoint does what it would have done
    without the interruption.

    Attributes:
        train_sequences: what is trained on, known once `prepare` has run
        evaluation_sequences: what the best checkpoint is chosen by
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._config: SupervisedConfig = run.options("trainer")
        self._strategy: SingleProcess = run.load("strategy", run.config.strategy.id)(run.options("strategy"))
        self._checkpoints = (
            Checkpoints(run.directory.path / "checkpoints", keep=run.config.checkpoint.keep) if run.directory else None
        )
        self._progress = Progress()
        self._saved_step: int | None = None
        self._best_loss = math.inf
        self._executor: Executor | None = None
        self.train_sequences: list[Tokens] = []
        self.evaluation_sequences: list[Tokens] = []

    def prepare(self) -> None:
        """Load the model and encode the conversations; `train` does it where nobody has.

        Raises:
            UserError: the model or the data cannot be used.
        """
        self._load()
        self._read()

    def train(self) -> Mapping[str, float]:
        """Run to the last step, or until a stop is requested; returns the last metrics. Raises as `prepare`."""
        if not self.train_sequences:
            self.prepare()
        try:
            if self._config.rollouts:
                self._executor = self._strategy.executor(self._run.executor(self._weights))
                with self._strategy.agreed():
                    prove(self._executor, self._model, self._weights)
            return self._train()
        except EngineError:
            if self._progress.step and self._saved_step != self._progress.step:
                self._save()
            raise
        finally:
            if self._executor is not None:
                self._executor.close()

    def _train(self) -> Mapping[str, float]:
        run, metrics = self._run, {}
        self._introduce()
        if run.resume_from is None and (metrics := self._evaluate(0)):
            run.log(0, metrics)
        for step in range(self._progress.step + 1, self._steps + 1):
            if self._strategy.any(run.stop_requested):
                break
            started = time.perf_counter()
            metrics = self._update(step)
            metrics["time/step_s"] = time.perf_counter() - started
            self._advance(step)
            every = run.config.evaluation.every
            if every and (step % every == 0 or step == self._steps):
                metrics |= self._evaluate(step)
            run.log(step, metrics)
            every = run.config.checkpoint.every
            if (every and step % every == 0) or self._progress.best_step == step:
                self._save()
        # The last step, or the one after which a stop was requested.
        if self._saved_step != self._progress.step:
            self._save()
        return metrics

    # Start

    def _load(self) -> None:
        run, config = self._run, self._config
        device = self._strategy.device(run.config.model.device)
        self._folder = self._strategy.from_main(run.model_folder)
        state = None
        if run.resume_from is not None:
            read = self._checkpoints.resume if self._checkpoints else checkpoint.read
            self._progress, state, _ = read(run.resume_from, map_location=device)
            self._saved_step = self._progress.step
        self._model = starting_policy(run, self._folder, device=device, dropout=True)
        if config.gradient_checkpointing:
            self._model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._weights = PolicyWeights(self._model, self._folder, self._progress.updates)
        self._strategy.prepare(self._model, betas=config.betas, weight_decay=config.weight_decay)
        if state is not None:
            self._strategy.restore(state)
            self._best_loss = float(state["supervised"]["best_loss"])

    def _read(self) -> None:
        """Encode the conversations, and tell what does not fit."""
        run, config, seed = self._run, self._config, self._run.config.seed
        chat_format = run.chat_format(self._folder)
        limit = config.max_tokens or self._model_limit()
        train = encode(training_conversations(run.dataset, config, seed=seed), chat_format, config, limit=limit)
        self.train_sequences = train.sequences
        told = [train.sentence("training", limit)]
        if run.config.evaluation.every:
            held = encode(evaluation_conversations(run.dataset), chat_format, config, limit=limit)
            told.append(held.sentence("evaluation", limit))
            self.evaluation_sequences = held.sequences
            if held.sequences and (count := shared(train.sequences, held.sequences)):
                told.append(f"{count} evaluation conversations are trained on too: their loss says little")
            elif not held.sequences and config.held_out:
                self.train_sequences, self.evaluation_sequences = hold_out(train.sequences, config.held_out, seed=seed)
        self._unused = train.skipped + train.untrained
        self._notes = [line for line in told if line]
        if not self.train_sequences:
            raise UserError(
                "no conversation is left to train on",
                found="; ".join(self._notes) or "the data has none",
                where="trainer.max_tokens",
                mend="a larger trainer.max_tokens, trainer.on_long=cut, or other data",
            )
        per_epoch = steps_of_epoch(len(self.train_sequences), config.conversations_per_step)
        self._steps = config.steps or config.epochs * per_epoch
        self._warmup_steps = config.warmup_of(self._steps)
        if self._warmup_steps >= self._steps:
            raise UserError(
                f"the learning rate would never leave its warm-up of {counted(self._warmup_steps, 'step')}",
                found=f"{counted(self._steps, 'step')} in all",
                where=run.resolved.origin(("trainer", "warmup_steps")),
                mend="a shorter warm-up, more epochs, or fewer trainer.conversations_per_step",
            )
        self._tasks: Sequence[Task] = (
            list(run.dataset.tasks("evaluation"))[: run.config.evaluation.tasks] if config.rollouts else []
        )

    def _model_limit(self) -> int:
        positions = getattr(self._model.config, "max_position_embeddings", None)
        return int(positions) if positions else 2**31 - 1

    def _introduce(self) -> None:
        say, train, held = self._run.say, self.train_sequences, self.evaluation_sequences
        parameters = self._model.num_parameters()  # of a quantised one as it was
        dtype = str(self._model.dtype).removeprefix("torch.")
        say(f"policy    {parameters:,} parameters, {dtype} on {self._model.device}")
        if has_adapter(self._model):
            say(f"adapter   {description(self._model)}")
        trained, tokens = sum(one.trained for one in train), sum(len(one.token_ids) for one in train)
        say(f"data      {counted(len(train), 'conversation')}, {counted(tokens, 'token')}, {trained:,} of them trained")
        if held:
            tokens = sum(one.trained for one in held)
            say(f"held out  {counted(len(held), 'conversation')}, {counted(tokens, 'trained token')}")
        epochs = self._steps / steps_of_epoch(len(train), self._config.conversations_per_step)
        warm = f", {self._warmup_steps} of them warming up" if self._warmup_steps else ""
        length = f"{counted(self._steps, 'update')}{warm}, {counted(epochs, 'epoch')}"
        say(f"steps     {length}, {self._config.schedule} schedule")
        for note in self._notes:
            say(f"note      {note}")

    # One step

    def _update(self, step: int) -> dict[str, float]:
        config, seed = self._config, self._run.config.seed
        count = len(self.train_sequences)
        _, members = batch_of_step(step, conversations=count, per_step=config.conversations_per_step, seed=seed)
        batch = [self.train_sequences[i] for i in members]
        rate = learning_rate(
            step,
            steps=self._steps,
            peak=config.learning_rate,
            warmup_steps=self._warmup_steps,
            schedule=config.schedule,
        )
        torch.manual_seed(derive_seed(seed, "supervised", "dropout", step, *self._strategy.place.key))
        self._model.train()
        loss = supervised_gradient(self._model, self._strategy, batch, config.max_tokens_per_batch)
        norm, updated = self._strategy.step(rate, config.max_gradient_norm)
        self._model.train(False)
        self._weights.version += updated
        return {
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rate,
            "tokens/trained": float(sum(sequence.trained for sequence in batch)),
            "conversations": float(len(batch)),
            "data/epoch": step / steps_of_epoch(count, config.conversations_per_step),
            "data/unused": float(self._unused),
            "updates": float(updated),
            "updates/skipped": float(not updated),
        }

    def _evaluate(self, step: int) -> dict[str, float]:
        """Held-out conversations, and the evaluation tasks where these are asked for. Touches nothing of training."""
        started = time.perf_counter()
        metrics: dict[str, float] = {}
        if self.evaluation_sequences:
            total, tokens = total_loss(
                self._model, self._strategy, self.evaluation_sequences, self._config.max_tokens_per_batch
            )
            loss = total / tokens
            metrics |= {"evaluation/loss": loss, "evaluation/perplexity": _perplexity(loss)}
            if step and loss < self._best_loss:
                self._best_loss = loss
                self._advance(step, best_step=step)
        if self._executor is not None and self._tasks:
            metrics |= self._roll_out(step)
        if metrics:
            metrics["time/evaluation_s"] = time.perf_counter() - started
        return metrics

    def _roll_out(self, step: int) -> dict[str, float]:
        run, executor = self._run, self._executor
        assert executor is not None
        with self._strategy.agreed():
            executor.sync_weights(self._weights)
            compare(executor, self._model, version=self._weights.version)
        groups = executor.collect(evaluation_request(run.config, self._tasks))
        run.record(step, "evaluation", groups)
        calls = [len(message.tool_calls) for g in groups for t in g.trajectories for message in t.messages]
        tried = sum(len(group.trajectories) for group in groups)
        return {
            **evaluation_metrics(groups, success=run.config.evaluation.success),
            "evaluation/tool_calls": sum(calls) / tried,
        }

    # Progress

    def _advance(self, step: int, *, best_step: int | None = None) -> None:
        best = self._progress.best_step if best_step is None else best_step
        self._progress = Progress(step=step, updates=self._weights.version, best_step=best)

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        state: dict[str, Any] = self._strategy.state() | {"supervised": {"best_loss": self._best_loss}}
        path = self._checkpoints.save(self._progress, self._model, self._folder, state)
        self._saved_step = self._progress.step
        self._run.checkpoint_saved(self._progress.step, path)


def _perplexity(loss: float) -> float:
    """``exp(loss)``; a loss that is too large for it gives infinity."""
    return math.exp(loss) if loss < 700 else math.inf
