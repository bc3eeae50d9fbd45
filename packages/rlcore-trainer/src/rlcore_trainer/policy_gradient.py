"""The policy-gradient trainer: collect, judge, compare, update, again."""

from __future__ import annotations

import copy
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rlcore.contracts import Executor
from rlcore.errors import EngineError, UserError
from rlcore.types import EndReason, Group, RolloutRequest, Task, derive_seed
from transformers import PreTrainedModel

from rlcore_trainer import checkpoint
from rlcore_trainer.checkpoint import Checkpoints, Progress
from rlcore_trainer.config import AlgorithmConfig, PolicyGradientConfig, WarmupConfig
from rlcore_trainer.data_order import tasks_of_step
from rlcore_trainer.model import PolicyWeights, load_policy
from rlcore_trainer.packing import Sequence as TrainedSequence
from rlcore_trainer.rollout_metrics import evaluation_metrics, rollout_metrics, usable
from rlcore_trainer.schedule import learning_rate
from rlcore_trainer.strategies.single import SingleProcess
from rlcore_trainer.sync_check import compare, prove
from rlcore_trainer.updates import PolicyUpdate
from rlcore_trainer.warmup import warm_up

if TYPE_CHECKING:
    from rlcore.run import Run


class PolicyGradientTrainer:
    """Trains the policy of a run from its own rollouts.

    Everything random is keyed by the run's seed and the step, so a run that is continued from a checkpoint does what
    it would have done without the interruption.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._config: PolicyGradientConfig = run.options("trainer")
        self._algorithm: AlgorithmConfig = run.options("algorithm")
        self._warmup: WarmupConfig = run.options("warmup")
        self._strategy: SingleProcess = run.load("strategy", run.config.strategy.id)(run.options("strategy"))
        self._advantage = run.load("advantage", self._algorithm.advantage)
        self._policy_loss = run.load("loss", self._algorithm.loss)
        self._train_tasks: Sequence[Task] = run.dataset.tasks("train")
        tasks_of_step(1, tasks=len(self._train_tasks), per_step=self._config.tasks_per_step, seed=0)
        evaluation = run.config.evaluation
        self._evaluation_tasks: Sequence[Task] = (
            list(run.dataset.tasks("evaluation"))[: evaluation.tasks] if evaluation.every else []
        )
        self._checkpoints = (
            Checkpoints(run.directory.path / "checkpoints", keep=run.config.checkpoint.keep) if run.directory else None
        )
        self._progress = Progress()
        self._proven = False
        """Whether a transfer of weights to the engine has been seen to work."""
        self._scored = run.resume_from is not None
        """Whether a rollout of this run has been scored."""

    def train(self) -> Mapping[str, float]:
        """Run to the last step, or until a stop is requested; returns the last metrics."""
        self._load()
        executor = self._run.executor(self._weights)
        try:
            return self._train(executor)
        except EngineError:
            self._save_if_unsaved()
            raise
        finally:
            executor.close()

    def _train(self, executor: Executor) -> Mapping[str, float]:
        run, config = self._run, self._config
        metrics: dict[str, float] = {}
        if run.resume_from is None:
            if not self._warm_up(executor):
                return metrics
            self._start_reinforcement(restored=None)
            self._sync(executor, 0)
            metrics = self._evaluate(executor, 0)
            if metrics:
                run.log(0, metrics)
            if self._warmup.steps and run.config.checkpoint.every:
                self._save()
        else:
            self._sync(executor, 0)
        self._introduce()
        for step in range(self._progress.step + 1, config.steps + 1):
            if run.stop_requested:
                break
            started = time.perf_counter()
            groups = self._collect(executor, step)
            if groups is None:
                break
            collected = time.perf_counter()
            metrics = rollout_metrics(groups, success=run.config.evaluation.success)
            metrics |= self._update(groups, step)
            updated = time.perf_counter()
            self._advance(step)
            evaluation = run.config.evaluation
            try:
                metrics |= self._sync(executor, step)
                synced = time.perf_counter()
                if evaluation.every and (step % evaluation.every == 0 or step == config.steps):
                    metrics |= self._evaluate(executor, step)
            except EngineError:
                run.log(step, metrics)  # the update is done: the checkpoint that follows holds it
                raise
            metrics |= {
                "time/rollout_s": collected - started,
                "time/update_s": updated - collected,
                "time/sync_s": synced - updated,
                "time/step_s": synced - started,
            }
            run.log(step, metrics)
            every = run.config.checkpoint.every
            if every and (step % every == 0 or self._progress.best_step == step):
                self._save()
        # The last step, or the one after which a stop was requested.
        self._save_if_unsaved()
        return metrics

    # Start

    def _load(self) -> None:
        run = self._run
        device = self._strategy.device(run.config.model.device)
        self._folder = run.model_folder()
        source = self._folder if run.resume_from is None else run.resume_from / "model"
        restored: dict[str, Any] | None = None
        if run.resume_from is not None:
            read = self._checkpoints.resume if self._checkpoints else checkpoint.read
            self._progress, restored = read(run.resume_from, map_location=device)
        self._model = load_policy(source, dtype=run.config.model.dtype, device=device)
        if self._config.gradient_checkpointing:
            self._model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._weights = PolicyWeights(self._model, self._folder, self._progress.updates)
        self._saved_step = self._progress.step if run.resume_from is not None else None
        if restored is not None:
            self._start_reinforcement(restored=restored)

    def _warm_up(self, executor: Executor) -> bool:
        """Whether to go on: not when a stop was requested meanwhile."""
        config, run = self._warmup, self._run
        if not config.steps:
            return not run.stop_requested
        self._prepare()
        updates = warm_up(
            self._model,
            self._strategy,
            run.dataset,
            executor.chat_format,
            config,
            self._config,
            seed=run.config.seed,
            say=run.say,
            stopped=lambda: run.stop_requested,
        )
        self._progress = Progress(updates=updates)
        self._weights.version = updates
        return not run.stop_requested

    def _start_reinforcement(self, *, restored: Mapping[str, Any] | None) -> None:
        """A fresh optimiser, or a restored one, and the reference policy of the KL term."""
        self._prepare()
        if restored is not None:
            self._strategy.restore(restored)
        self._reference = (
            self._reference_policy(resumed=restored is not None) if self._algorithm.kl.coefficient else None
        )
        self._updater = PolicyUpdate(
            self._model,
            self._reference,
            self._strategy,
            self._policy_loss,
            self._config,
            self._algorithm,
            temperature=self._run.config.rollout.temperature,
        )

    def _prepare(self) -> None:
        self._strategy.prepare(self._model, betas=self._config.betas, weight_decay=self._config.weight_decay)

    def _reference_policy(self, *, resumed: bool) -> PreTrainedModel:
        wanted = self._algorithm.kl.reference
        saved = self._checkpoints.folder / "reference" if self._checkpoints else None
        if wanted is None and not resumed:
            if self._warmup.steps and self._checkpoints:
                self._checkpoints.save_reference(self._model, self._folder)
            reference: PreTrainedModel = copy.deepcopy(self._model)
            reference.train(False)
        else:
            folder = Path(wanted) if wanted else saved if saved and saved.is_dir() else self._folder
            reference = load_policy(folder, dtype=self._run.config.model.dtype, device=self._model.device)
        reference.requires_grad_(False)
        return reference

    def _introduce(self) -> None:
        config, algorithm, group_size = self._config, self._algorithm, self._run.config.rollout.group_size
        parameters = sum(parameter.numel() for parameter in self._model.parameters())
        updates = self._updater.updates_per_rollout
        say = self._run.say
        dtype = str(self._model.dtype).removeprefix("torch.")
        say(f"policy    {parameters:,} parameters, {dtype} on {self._model.device}")
        say(
            f"step      {config.tasks_per_step} tasks × {group_size} trajectories; {updates} optimiser "
            f"{'update, strictly on policy' if updates == 1 else 'updates, off policy after the first'}"
        )
        if algorithm.kl.coefficient and algorithm.kl.estimator == "k1":
            say("note      k1 as a loss has a gradient of zero mean: it adds noise and does not pull; use mse or k3")
        if algorithm.shuffle_rewards:
            say("note      rewards are shuffled: a control experiment, nothing can be learnt")

    # One step

    def _collect(self, executor: Executor, step: int) -> Sequence[Group] | None:
        """The step's scored groups; None when the rollout was cut short by a stop and the step must not count."""
        run = self._run
        _, indices = tasks_of_step(
            step, tasks=len(self._train_tasks), per_step=self._config.tasks_per_step, seed=run.config.seed
        )
        request = RolloutRequest(
            tasks=[self._train_tasks[i] for i in indices],
            group_size=run.config.rollout.group_size,
            seed=run.config.seed,
            step=step,
        )
        groups = self._roll_out(executor, request)
        if run.stop_requested and any(t.end_reason is EndReason.CANCELLED for g in groups for t in g.trajectories):
            return None
        run.record(step, "train", groups)
        self._require_scores(groups, f"step {step}")
        return groups

    def _require_scores(self, groups: Sequence[Group], what: str) -> None:
        """End a run that has nothing to learn from; what it has learnt until then is kept.

        Raises:
            UserError: of all these trajectories none is scored.
        """
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        if any(trajectory.reward is not None for trajectory in trajectories):
            self._scored = True
            return
        if self._scored:
            self._save_if_unsaved()
        reasons = Counter(f"{one.end_reason}: {one.error or 'no reason was given'}" for one in trajectories)
        ((reason, count),) = reasons.most_common(1)
        raise UserError(
            f"{what} has nothing to learn from: none of its {len(trajectories)} trajectories is scored",
            found=f"{count} times {reason}",
            mend="mend what failed there: a reward, the environment, or a service that they need",
        )

    def _roll_out(self, executor: Executor, request: RolloutRequest) -> Sequence[Group]:
        """The scored groups of a request; an engine that failed gets a second chance with the same request."""
        try:
            return executor.collect(request)
        except EngineError as error:
            self._run.say(f"engine    failed, its rollout of step {request.step} is done again: {error}")
            self._sync(executor, request.step)
            return executor.collect(request)

    def _sync(self, executor: Executor, step: int) -> dict[str, float]:
        """Give the engine the weights, and look whether they arrived; the first time, whether transfer works at all."""
        every = self._config.sync_check_every
        if every and not self._proven:
            prove(executor, self._model, self._weights)
            self._proven = True
        else:
            executor.sync_weights(self._weights)
        if not every or step % every:
            return {}
        return {"sync/gap": compare(executor, self._model, version=self._weights.version)}

    def _update(self, groups: Sequence[Group], step: int) -> dict[str, float]:
        config, seed = self._config, self._run.config.seed
        epoch, _ = tasks_of_step(step, tasks=len(self._train_tasks), per_step=config.tasks_per_step, seed=seed)
        sequences, metrics = self._sequences(groups, step)
        rate = learning_rate(
            step,
            steps=config.steps,
            peak=config.learning_rate,
            warmup_steps=config.warmup_steps,
            schedule=config.schedule,
        )
        result = self._updater.run(sequences, learning_rate=rate, key=(seed, step))
        self._weights.version += result.updates
        trained = sum(sequence.trained for sequence in sequences)
        metrics |= result.metrics
        metrics |= {"learning_rate": rate, "tokens/trained": float(trained), "data/epoch": float(epoch)}
        metrics |= {"updates": float(result.updates), "updates/skipped": float(result.skipped)}
        return metrics

    def _sequences(self, groups: Sequence[Group], step: int) -> tuple[list[TrainedSequence], dict[str, float]]:
        """The scored trajectories with their advantages; none when nothing can be learnt from the step."""
        groups = usable(groups)
        members = [(index, t) for index, group in enumerate(groups) for t in group.trajectories]
        rewards = [t.reward for _, t in members if t.reward is not None]
        if not members:
            return [], {"groups/equal": 0.0}
        if self._algorithm.shuffle_rewards:
            random.Random(derive_seed(self._run.config.seed, "shuffle", step)).shuffle(rewards)
        advantages_N, metrics = self._advantage(
            torch.tensor(rewards, dtype=torch.float64),
            torch.tensor([index for index, _ in members]),
            normalise_by_std=self._algorithm.normalise_by_std,
        )
        if not advantages_N.any() and not self._algorithm.kl.coefficient and not self._algorithm.entropy:
            return [], metrics
        sequences = [
            TrainedSequence(token_ids=t.token_ids, loss_mask=t.loss_mask, logprobs=t.logprobs, advantage=advantage)
            for (_, t), advantage in zip(members, advantages_N.tolist(), strict=True)
        ]
        return sequences, metrics

    def _evaluate(self, executor: Executor, step: int) -> dict[str, float]:
        """Held-out tasks. Every evaluation draws the same random numbers, none of them training's."""
        run, table = self._run, self._run.config.evaluation
        if not self._evaluation_tasks or (step == 0 and not table.every):
            return {}
        started = time.perf_counter()
        request = RolloutRequest(
            tasks=self._evaluation_tasks,
            group_size=table.samples,
            seed=run.config.seed,
            step=0,
            purpose="evaluation",
            sampling={"temperature": table.temperature, "top_p": 1.0, "top_k": 0},
        )
        groups = self._roll_out(executor, request)
        run.record(step, "evaluation", groups)
        if not self._scored and not run.stop_requested:
            self._require_scores(groups, "the first evaluation")
        metrics = evaluation_metrics(groups, success=table.success)
        accuracy, reward = metrics.get("evaluation/accuracy"), metrics.get("evaluation/reward")
        if accuracy is not None and reward is not None:
            best = (self._progress.best_accuracy, self._progress.best_reward)
            if self._progress.best_step is None or (accuracy, reward) >= best:
                self._advance(step, best_step=step, best_accuracy=accuracy, best_reward=reward)
        metrics["time/evaluation_s"] = time.perf_counter() - started
        return metrics

    # Progress

    def _advance(self, step: int, **best: Any) -> None:
        known = {name: getattr(self._progress, name) for name in ("best_step", "best_accuracy", "best_reward")}
        self._progress = Progress(step=step, updates=self._weights.version, **{**known, **best})

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        path = self._checkpoints.save(self._progress, self._model, self._folder, self._strategy.state())
        self._saved_step = self._progress.step
        self._run.checkpoint_saved(self._progress.step, path)

    def _save_if_unsaved(self) -> None:
        if self._saved_step != self._progress.step:
            self._save()
