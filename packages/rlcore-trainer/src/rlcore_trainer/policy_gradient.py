"""The policy-gradient trainer: collect, judge, compare, update, again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.contracts import Executor
from rlcore.errors import EngineError, UserError
from rlcore.evaluation import evaluation_request
from rlcore.types import EndReason, Group, RolloutRequest, Task
from rlcore.wording import counted
from transformers import PreTrainedModel

from rlcore_trainer import checkpoint
from rlcore_trainer.algorithm_config import AlgorithmConfig, description, response_limit
from rlcore_trainer.checkpoint import Checkpoints, Progress
from rlcore_trainer.collection import Collected, Collector
from rlcore_trainer.config import CriticConfig, PolicyGradientConfig, WarmupConfig
from rlcore_trainer.contradictions import comparable
from rlcore_trainer.critic import Critic
from rlcore_trainer.lora import description as adapter_description
from rlcore_trainer.lora import has_adapter
from rlcore_trainer.lora_config import lora_table
from rlcore_trainer.model import PolicyWeights
from rlcore_trainer.reference import AdapterReference, reference_policy
from rlcore_trainer.rollout_metrics import evaluation_metrics, rollout_metrics
from rlcore_trainer.schedule import learning_rate
from rlcore_trainer.start import starting_policy
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
        self._critic_config: CriticConfig = run.options("critic")
        self._strategy: SingleProcess = run.load("strategy", run.config.strategy.id)(run.options("strategy"))
        evaluation = run.config.evaluation
        self._collector = Collector(
            run.dataset.tasks("train"),
            trainer=self._config,
            filter=self._algorithm.filter,
            group_size=run.config.rollout.group_size,
            seed=run.config.seed,
            success=evaluation.success,
            roll_out=self._sample,
            on_sampled=self._judge_sampled,
            say=run.say,
        )
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
        self._executor: Executor = self._strategy.executor(self._run.executor(self._weights))
        try:
            return self._train()
        except EngineError:
            self._save_if_unsaved()
            raise
        finally:
            self._executor.close()

    def _train(self) -> Mapping[str, float]:
        run, config = self._run, self._config
        metrics: dict[str, float] = {}
        if run.resume_from is None:
            if not self._warm_up():
                return metrics
            self._start_reinforcement(restored=None)
            self._sync(0)
            metrics = self._evaluate(0)
            if metrics:
                run.log(0, metrics)
            if self._warmup.steps and run.config.checkpoint.every:
                self._save()
        else:
            self._sync(0)
        self._introduce()
        for step in range(self._progress.step + 1, config.steps + 1):
            if self._stopping():
                break
            started = time.perf_counter()
            rollout = self._collector.collect(step)
            baselines = None if rollout is None else self._baselines(rollout.groups, step)
            if rollout is None or baselines is None:
                break
            collected = time.perf_counter()
            metrics = rollout_metrics(rollout.sampled, success=run.config.evaluation.success)
            metrics |= self._update(rollout, baselines, step)
            updated = time.perf_counter()
            self._advance(step)
            evaluation = run.config.evaluation
            try:
                metrics |= self._sync(step)
                synced = time.perf_counter()
                if evaluation.every and (step % evaluation.every == 0 or step == config.steps):
                    metrics |= self._evaluate(step)
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
        self._folder = self._strategy.from_main(run.model_folder)
        restored: dict[str, Any] | None = None
        if run.resume_from is not None:
            read = self._checkpoints.resume if self._checkpoints else checkpoint.read
            self._progress, restored, collection = read(run.resume_from, map_location=device)
            self._collector.restore(collection)
        self._model = starting_policy(run, self._folder, device=device)
        if self._config.gradient_checkpointing:
            self._model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._weights = PolicyWeights(self._model, self._folder, self._progress.updates)
        self._saved_step = self._progress.step if run.resume_from is not None else None
        # What has folders of its own is loaded before a warm-up, which would be lost when it cannot be used.
        critic, kl = self._critic_config, self._algorithm.kl
        self._critic = self._make_critic() if critic.model not in (None, "copy", "head") else None
        self._reference = self._make_reference(resumed=restored is not None) if kl.reference is not None else None
        if restored is not None:
            self._start_reinforcement(restored=restored)

    def _warm_up(self) -> bool:
        """Whether to go on: not when a stop was requested meanwhile."""
        config, run = self._warmup, self._run
        if not config.steps:
            return not self._stopping()
        self._prepare()
        updates = warm_up(
            self._model,
            self._strategy,
            run.dataset,
            self._executor.chat_format,
            config,
            self._config,
            seed=run.config.seed,
            say=run.say,
            stopped=self._stopping,
        )
        self._progress = Progress(updates=updates)
        self._weights.version = updates
        return not self._stopping()

    def _start_reinforcement(self, *, restored: Mapping[str, Any] | None) -> None:
        """A fresh optimiser, or a restored one, and the reference policy of the KL term."""
        self._prepare()
        if restored is not None:
            self._strategy.restore(restored)
        if self._reference is None:
            self._reference = self._make_reference(resumed=restored is not None)
        if self._critic is None and self._critic_config.model is not None:
            self._critic = self._make_critic()
        run = self._run
        rollout = run.config.rollout
        self._updater = PolicyUpdate(
            self._model,
            self._reference,
            self._critic,
            self._strategy,
            run.load("advantage", self._algorithm.advantage),
            run.load("loss", self._algorithm.loss),
            self._config,
            self._algorithm,
            temperature=rollout.temperature,
            comparable=comparable(rollout),
            max_response_tokens=response_limit(self._algorithm, rollout, run.resolved.options.get("environment")),
        )
        if restored is not None:
            self._updater.restore(restored["updates"])
            if self._critic is not None and "critic" not in restored["updates"]:
                run.say("critic    starts anew: the checkpoint has none")

    def _make_critic(self) -> Critic:
        return Critic(self._critic_config, self._model, self._strategy, self._config)

    def _make_reference(self, *, resumed: bool) -> PreTrainedModel | AdapterReference | None:
        lora = lora_table(self._run)
        checkpoints, from_ = self._checkpoints, self._run.resume_from
        if checkpoints is None and from_ is not None:  # another process keeps those of the run
            checkpoints = Checkpoints(from_.parent, keep=self._run.config.checkpoint.keep)
        return reference_policy(
            self._model,
            self._algorithm.kl,
            folder=self._folder,
            checkpoints=checkpoints,
            keep=self._warmup.steps > 0,
            resumed=resumed,
            start=Path(lora.adapter).expanduser() if lora.adapter is not None else None,
        )

    def _prepare(self) -> None:
        self._strategy.prepare(self._model, betas=self._config.betas, weight_decay=self._config.weight_decay)

    def _introduce(self) -> None:
        config, group_size = self._config, self._run.config.rollout.group_size
        parameters = self._model.num_parameters()  # of a quantised one as it was
        updates = self._updater.updates_per_rollout
        say = self._run.say
        dtype = str(self._model.dtype).removeprefix("torch.")
        say(f"policy    {parameters:,} parameters, {dtype} on {self._model.device}")
        if has_adapter(self._model):
            say(f"adapter   {adapter_description(self._model)}")
        say(
            f"step      {counted(config.tasks_per_step, 'task')} × {counted(group_size, 'trajectory')}; "
            f"{counted(updates, 'optimiser update')}, "
            f"{'strictly on policy' if updates == 1 else 'off policy after the first'}"
        )
        say(f"algorithm {description(self._algorithm)}")

    # One step

    def _sample(self, request: RolloutRequest) -> Sequence[Group] | None:
        """The scored groups of a request; None when a stop cut it short."""
        if self._stopping():
            return None
        groups = self._roll_out(request)
        stopped = any(t.end_reason is EndReason.CANCELLED for group in groups for t in group.trajectories)
        return None if stopped and self._stopping() else groups

    def _stopping(self) -> bool:
        """Whether a stop was requested, of any process."""
        return self._strategy.any(self._run.stop_requested)

    def _judge_sampled(self, step: int, groups: Sequence[Group]) -> None:
        self._run.record(step, "train", groups)
        self._require_scores(groups, f"step {step}")

    def _baselines(self, groups: Sequence[Group], step: int) -> dict[int, float] | None:
        """The score of the greedy answer by index of group, where the advantage asks for it; None after a stop."""
        if not self._updater.reads_baselines or not groups:
            return {}
        request = RolloutRequest(
            tasks=[group.task for group in groups],
            group_size=1,
            seed=self._run.config.seed,
            step=step,
            purpose="baseline",
            sampling={"temperature": 0.0, "top_p": 1.0, "top_k": 0},
        )
        answers = self._sample(request)
        if answers is None:
            return None
        scores = {index: answer.rewards_G[0] for index, answer in enumerate(answers)}
        return {index: score for index, score in scores.items() if score is not None}

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

    def _roll_out(self, request: RolloutRequest) -> Sequence[Group]:
        """The scored groups of a request; an engine that failed gets a second chance with the same request."""
        try:
            return self._executor.collect(request)
        except EngineError as error:
            self._run.say(f"engine    failed, its rollout of step {self._progress.step + 1} is done again: {error}")
            self._sync(self._progress.step + 1)
            return self._executor.collect(request)

    def _sync(self, step: int) -> dict[str, float]:
        """Give the engine the weights, and look whether they arrived; the first time, whether transfer works at all."""
        every = self._config.sync_check_every
        with self._strategy.agreed():
            if every and not self._proven:
                prove(self._executor, self._model, self._weights)
                self._proven = True
            else:
                self._executor.sync_weights(self._weights)
            if not every or step % every:
                return {}
            return {"sync/gap": compare(self._executor, self._model, version=self._weights.version)}

    def _update(self, rollout: Collected, baselines: Mapping[int, float], step: int) -> dict[str, float]:
        config, seed = self._config, self._run.config.seed
        rate = learning_rate(
            step,
            steps=config.steps,
            peak=config.learning_rate,
            warmup_steps=config.warmup_steps,
            schedule=config.schedule,
        )
        critic_only = self._critic_config.model is not None and step <= self._critic_config.warmup_steps
        result = self._updater.run(
            rollout.groups, learning_rate=rate, key=(seed, step), baselines=baselines, critic_only=critic_only
        )
        self._weights.version += result.updates
        metrics = {**rollout.metrics, **result.metrics}
        metrics |= {"learning_rate": rate, "data/epoch": float(rollout.epoch)}
        metrics |= {"updates": float(result.updates), "updates/skipped": float(result.skipped)}
        return metrics

    def _evaluate(self, step: int) -> dict[str, float]:
        """Held-out tasks. Every evaluation draws the same random numbers, none of them training's."""
        run, table = self._run, self._run.config.evaluation
        if not self._evaluation_tasks or (step == 0 and not table.every):
            return {}
        started = time.perf_counter()
        groups = self._roll_out(evaluation_request(run.config, self._evaluation_tasks))
        run.record(step, "evaluation", groups)
        if not self._scored and not self._stopping():
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
        state = self._strategy.state() | {"updates": self._updater.state()}
        path = self._checkpoints.save(
            self._progress, self._model, self._folder, state, collection=self._collector.state(self._progress.step)
        )
        self._saved_step = self._progress.step
        self._run.checkpoint_saved(self._progress.step, path)

    def _save_if_unsaved(self) -> None:
        if self._saved_step != self._progress.step:
            self._save()
