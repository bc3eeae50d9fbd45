"""The policy-gradient trainer: collect rollouts, compute advantages, update the policy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.episodes.evaluation import tasks_to_evaluate
from rlcore.errors import EngineError, UserError
from rlcore.types import Group, RolloutRequest, Task
from rlcore.wording import counted
from rlcore_models.lora_config import lora_table

from rlcore_trainer.algorithms.config import AlgorithmConfig, response_limit
from rlcore_trainer.algorithms.configured import description, selected_advantage, selected_loss
from rlcore_trainer.config import CurriculumConfig, PolicyGradientConfig, WarmupConfig
from rlcore_trainer.learner.learner import Learner, offer_reinforcement
from rlcore_trainer.learner.policy_learner import PolicyLearner
from rlcore_trainer.optim.critic import Critic
from rlcore_trainer.optim.critic_config import CriticConfig
from rlcore_trainer.optim.objective import Objective
from rlcore_trainer.optim.schedule import learning_rate
from rlcore_trainer.optim.updates import PolicyUpdate
from rlcore_trainer.policy.policy import TokenPolicy
from rlcore_trainer.training.best_step import require_measured
from rlcore_trainer.training.collection import Collected, Collector
from rlcore_trainer.training.conflicts import comparable
from rlcore_trainer.training.divergence import require_finite
from rlcore_trainer.training.reference import reference_policy
from rlcore_trainer.training.rollout_metrics import evaluation_metrics, rollout_metrics
from rlcore_trainer.training.rollouts import Rollouts, require_scores
from rlcore_trainer.training.session import TrainingSession
from rlcore_trainer.training.start import policy_spec
from rlcore_trainer.training.warmup import warm_up

if TYPE_CHECKING:
    from rlcore.runs.progress import Meter
    from rlcore.session.session import RunSession


CHECKED = {
    "loss/total": "loss",
    "gradient_norm": "gradient norm",
    "critic/loss": "loss of the critic",
    "critic/gradient_norm": "gradient norm of the critic",
}
"""Names of the metrics of a step that must be finite."""


DECIDING = ("evaluation/accuracy", "evaluation/reward")
"""The metrics that decide the best step by default, most important first."""


class PolicyGradientTrainer:
    """Trains the policy of a run from its own rollouts.

    All randomness is keyed by the run's seed and the step, so a resumed run produces the same results as an
    uninterrupted one.

    Attributes:
        session: policy, processes and checkpoints
    """

    def __init__(self, run: RunSession) -> None:
        """Load data, models and the engine.

        Raises:
            UserError: data, models or the checkpoint cannot be used.
        """
        self._run = run
        self._config: PolicyGradientConfig = run.options("trainer")
        self._algorithm: AlgorithmConfig = run.options("algorithm")
        self._warmup: WarmupConfig = run.options("warmup")
        self._critic_config: CriticConfig = run.options("critic")
        evaluation = run.config.evaluation
        tasks, curriculum = run.usable_tasks("train"), run.resolved.options.get("curriculum")
        self._steps = self._config.steps_of(len(tasks))
        self._collector = Collector(
            tasks,
            trainer=self._config,
            filter=self._algorithm.filter,
            group_size=run.config.rollout.group_size,
            seed=run.config.seed,
            success=evaluation.success,
            environments=run.config.mixture,
            curriculum=curriculum if isinstance(curriculum, CurriculumConfig) else None,
        )
        self._evaluation_tasks: Sequence[Task] = (
            tasks_to_evaluate(run.config, run.usable_tasks("evaluation")) if evaluation.every else []
        )
        self.session = TrainingSession(run, self._config)
        self._collector.restore(self.session.collection)
        self._local = self._policy_learner()
        offer_reinforcement(self.session.ranks, self._local)
        self.session.ranks.offer(imitate_episodes=self._imitate_episodes)
        self._learner = Learner(self.session.ranks, self._config.max_tokens_per_batch)
        rollout, options = run.config.rollout, [environment.options for environment in run.resolved.environments]
        self._updater = PolicyUpdate(
            self._learner,
            selected_advantage(run),
            selected_loss(run),
            self._config,
            self._algorithm,
            has_reference=self._local.reference is not None,
            critic=self._critic_config,
            max_response_tokens=response_limit(self._algorithm, rollout, *options),
        )
        if self.session.restored is not None:
            self._restore(self.session.restored["updates"])
        self._meter: Meter | None = None
        """Shows the progress of the imitation of episodes."""
        self._scored = self.session.resumed
        """Whether any rollout of this run has been scored."""
        self._rollouts = Rollouts(self.session, check_every=self._config.sync_check_every)

    def train(self) -> Mapping[str, float]:
        """Train until the last step or until a stop is requested, and return the last metrics."""
        with self._rollouts, self.session.ranks as ranks:
            if not ranks.is_main:
                ranks.serve()
                return {}
            if not self.session.resumed and not self._warm_up():
                return {}
            try:
                return self._reinforce()
            except EngineError:
                self.session.save_unsaved(self)
                raise

    def state(self) -> Mapping[str, Any]:
        """Return the state of the updates; see `rlcore_trainer.training.session.Resumable`."""
        return {"updates": {**self._updater.state(), **self._local.state()}}

    def collection(self) -> Mapping[str, Any]:
        """Return the state of sampling after the last completed step."""
        return self._collector.state(self.session.progress.step)

    def _reinforce(self) -> Mapping[str, float]:
        run, session, evaluation = self._run, self.session, self._run.config.evaluation
        metrics: dict[str, float] = {}
        self._rollouts.sync(0)
        if not session.resumed:
            if metrics := self._evaluate(0):
                run.log(0, metrics)
            if self._warmup.steps and run.config.checkpoint.every:
                session.save(self)
        session.introduce(self._introduction())
        for step in session.steps(self._steps):
            started = time.perf_counter()
            rollout = self._collect(step)
            baselines = None if rollout is None else self._baselines(rollout.groups, step)
            if rollout is None or baselines is None:
                break
            collected = time.perf_counter()
            metrics = rollout_metrics(rollout.sampled, success=evaluation.success)
            metrics |= self._update(rollout, baselines, step)
            updated = time.perf_counter()
            session.advance(step)
            try:
                metrics |= self._rollouts.sync(step)
                synced = time.perf_counter()
                if evaluation.every and (step % evaluation.every == 0 or step == self._steps):
                    metrics |= self._evaluate(step)
            except EngineError:
                run.log(step, metrics)  # the update is complete and part of the next checkpoint
                raise
            metrics |= {
                "time/rollout_s": collected - started,
                "time/update_s": updated - collected,
                "time/sync_s": synced - updated,
                "time/step_s": synced - started,
            }
            session.watch(metrics, default=DECIDING[0])
            run.log(step, metrics)
            session.save_when_due(self, step)
        # Save the last step, also after a stop.
        session.save_unsaved(self)
        return metrics

    # Start

    def _policy_learner(self) -> PolicyLearner:
        """Return the learner of this process."""
        run, session, config = self._run, self.session, self._config
        critic = self._critic_config
        adapter = lora_table(run).adapter
        rollout = run.config.rollout
        return PolicyLearner(
            session.trained,
            reference_policy(
                session.policy,
                self._algorithm.kl,
                checkpoints=session.kept,
                keep=self._warmup.steps > 0,
                resumed=session.resumed,
                start=Path(adapter).expanduser() if adapter is not None else None,
            ),
            Critic(critic, session.policy, session.strategy, config) if critic.model else None,
            Objective(selected_loss(run), self._algorithm, comparable=comparable(rollout)),
            config,
            temperature=rollout.temperature,
            progress=run.progress,
        )

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._updater.restore(state)
        critic = self._local.critic
        if critic is not None and "critic" in state:
            critic.restore(state["critic"])
        elif critic is not None:
            self._run.say("critic    initialised anew: the checkpoint has no critic")

    def _warm_up(self) -> bool:
        """Run the warm-up phase, if configured. Return False if a stop was requested."""
        config, run, session = self._warmup, self._run, self.session
        if not config.steps:
            return not session.stopping()
        with run.progress("warm-up", config.steps, "step") as meter:
            session.policy.version = self._imitate(meter)
        session.advance(0)
        session.require_finite_policy("the end of the warm-up")
        if session.stopping():
            return False
        self._learner.begin_reinforcement()
        reference = self._local.reference
        if reference is not None and session.checkpoints is not None and self._algorithm.kl.reference is None:
            session.checkpoints.save_reference(session.policy)
        return True

    def _imitate(self, meter: Meter) -> int:
        """Train on the demonstrations that the policy can imitate, and return the number of updates."""
        run, session = self._run, self.session
        if not isinstance(session.policy, TokenPolicy):
            self._meter = meter
            found: list[int] = session.ranks.call("imitate_episodes")
            return found[0]
        return warm_up(
            self._learner,
            run.dataset,
            self._rollouts.chat_format,
            self._warmup,
            self._config,
            seed=run.config.seed,
            say=run.update,
            meter=meter,
            stopped=session.stopping,
        )

    def _imitate_episodes(self) -> int:
        """Imitate recorded episodes with a control policy. All processes call it together."""
        run, session = self._run, self.session
        spec = policy_spec(run)
        assert spec is not None, "a policy without tokens has a spec"
        imitate = run.registry.load_for("policy", spec, spec.warm_up)
        updates: int = imitate(
            session.trained,
            run,
            self._warmup,
            self._config,
            seed=run.config.seed,
            say=run.update,
            meter=self._meter,
            stopped=lambda: session.trained.processes.any(run.stop_requested),
            check=require_finite,
        )
        return updates

    def _introduction(self) -> Iterator[str]:
        config, group_size = self._config, self._run.config.rollout.group_size
        updates = self._updater.updates_per_rollout
        yield (
            f"step      {counted(config.tasks_per_step, 'task')} × {counted(group_size, 'trajectory')}; "
            f"{counted(updates, 'optimiser update')}, "
            f"{'strictly on-policy' if updates == 1 else 'off-policy after the first'}"
        )
        yield f"algorithm {description(self._run)}"

    # One step

    def _collect(self, step: int) -> Collected | None:
        """Collect and record the groups of a step; None after a stop."""
        rollout = self._collector.collect(step, self._rollouts)
        if rollout is not None and rollout.sampled:
            self._run.record(step, "train", rollout.sampled)
            self._require_scores(rollout.sampled, f"step {step}")
        if rollout is not None and rollout.warning is not None:
            self._run.say(rollout.warning)
        return rollout

    def _baselines(self, groups: Sequence[Group], step: int) -> dict[int, float] | None:
        """Return the score of the greedy response by group index, if the advantage needs it; None after a stop."""
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
        answers = self._rollouts.collect(request)
        if answers is None:
            return None
        scores = {index: answer.rewards_G[0] for index, answer in enumerate(answers)}
        return {index: score for index, score in scores.items() if score is not None}

    def _update(self, rollout: Collected, baselines: Mapping[int, float], step: int) -> dict[str, float]:
        config, seed = self._config, self._run.config.seed
        rate = learning_rate(
            step,
            steps=self._steps,
            peak=config.learning_rate,
            warmup_steps=config.warmup_of(self._steps),
            schedule=config.schedule,
        )
        critic_only = self._critic_config.model is not None and step <= self._critic_config.warmup_steps
        result = self._updater.run(
            rollout.groups, learning_rate=rate, key=(seed, step), baselines=baselines, critic_only=critic_only
        )
        checked = {CHECKED[name]: value for name, value in result.metrics.items() if name in CHECKED}
        unchanged = None if result.updates or self._local.critic is not None else self
        self.session.require_finite(checked, f"step {step}", unchanged=unchanged)
        self.session.policy.version += result.updates
        metrics = {**rollout.metrics, **result.metrics}
        metrics |= {"learning_rate": rate, "data/epoch": float(rollout.epoch)}
        metrics["updates"] = float(result.updates)
        return metrics

    def _evaluate(self, step: int) -> dict[str, float]:
        """Evaluate the held-out tasks, and record the step if it is the best so far."""
        if not self._evaluation_tasks:
            return {}
        started, session = time.perf_counter(), self.session
        groups = self._rollouts.evaluate(step, self._evaluation_tasks)
        if not self._scored and not session.stopping():
            self._require_scores(groups, "the first evaluation")
        metrics = evaluation_metrics(groups, success=self._run.config.evaluation.success)
        if not session.stopping():
            require_measured(metrics, self._run.config.checkpoint.best)
        session.judge(step, metrics, default=DECIDING)
        metrics["time/evaluation_s"] = time.perf_counter() - started
        return metrics

    def _require_scores(self, groups: Sequence[Group], what: str) -> None:
        """Stop a run without scored trajectories, after saving its completed steps."""
        try:
            require_scores(groups, what)
        except UserError:
            if self._scored:
                self.session.save_unsaved(self)
            raise
        self._scored = True
