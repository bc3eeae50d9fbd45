"""The policy-gradient trainer: builds the parts of a run, and starts its controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.console.wording import counted
from rlcore.episodes.evaluation import tasks_to_evaluate
from rlcore.runs.machine import PhaseMemory
from rlcore_models.lora_config import lora_table

from rlcore_trainer.algorithms.config import AlgorithmConfig, comparable, response_limit
from rlcore_trainer.algorithms.configured import description, selected_advantage, selected_loss
from rlcore_trainer.batching.reward_values import reward_weights
from rlcore_trainer.checkpoints.checkpoint import Restored
from rlcore_trainer.checkpoints.reference import reference_policy
from rlcore_trainer.checkpoints.start import policy_spec
from rlcore_trainer.config import CurriculumConfig, PolicyGradientConfig, WarmupConfig
from rlcore_trainer.controller.build import all_checkpoints, rollouts, training_session
from rlcore_trainer.controller.collection import Collector
from rlcore_trainer.controller.controller import Controller
from rlcore_trainer.controller.divergence import require_finite
from rlcore_trainer.controller.schedule import Schedule, learning_rate
from rlcore_trainer.controller.selection import MAX_AGE
from rlcore_trainer.controller.stream import Stream
from rlcore_trainer.controller.teacher import distillation
from rlcore_trainer.controller.updates import PolicyUpdate
from rlcore_trainer.controller.warmup import warm_up
from rlcore_trainer.controller.warmup_phase import WarmUpPhase
from rlcore_trainer.learner.critic import Critic
from rlcore_trainer.learner.critic_config import CriticConfig
from rlcore_trainer.learner.learner import Learner, offer_reinforcement
from rlcore_trainer.learner.objective import Objective
from rlcore_trainer.learner.policy_learner import PolicyLearner
from rlcore_trainer.policy.policy import TokenPolicy
from rlcore_trainer.policy.references import FrozenReference

if TYPE_CHECKING:
    from rlcore.runs.progress import Meter
    from rlcore.session.session import RunSession


class PolicyGradientTrainer:
    """Trains the policy of a run from its own rollouts.

    Attributes:
        session: policy, processes and checkpoints
        update: updates the policy on a rollout
        rollouts: samples trajectories
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
        self._critic: CriticConfig = run.options("critic")
        tasks, curriculum = run.usable_tasks("train"), run.resolved.options.get("curriculum")
        config, rollout, evaluation = self._config, run.config.rollout, run.config.evaluation
        steps, schedule = config.steps_of(len(tasks)), run.config.schedule
        collects = partial(Stream, ahead=schedule.ahead, steps=steps, report=run) if schedule.ahead else Collector
        collector = collects(
            tasks,
            trainer=config,
            filter=self._algorithm.filter,
            group_size=rollout.group_size,
            seed=run.config.seed,
            success=evaluation.success,
            environments=run.config.mixture,
            curriculum=curriculum if isinstance(curriculum, CurriculumConfig) else None,
            max_age=schedule.ahead + MAX_AGE if schedule.max_age is None else schedule.max_age,
        )
        evaluation_tasks = tasks_to_evaluate(run.config, run.usable_tasks("evaluation")) if evaluation.every else []
        self.session, restored = training_session(run, config)
        self._loss = selected_loss(run)
        collector.restore(restored.collection if restored is not None else {})
        self._local = self._policy_learner()
        offer_reinforcement(self.session.ranks, self._local)
        self.session.ranks.offer(imitate_episodes=self._imitate_episodes)
        self._learner = Learner(self.session.ranks, config.max_tokens_per_batch)
        options = [environment.options for environment in run.resolved.environments]
        self.update = PolicyUpdate(
            self._learner,
            selected_advantage(run),
            self._loss,
            config,
            self._algorithm,
            has_reference=self._local.reference is not None,
            critic=self._critic,
            max_response_tokens=response_limit(self._algorithm, rollout, *options),
            reward_weights=reward_weights(run.resolved.environments),
        )
        if restored is not None:
            self._restore(restored)
        self._shown: dict[str, Any] = {}
        """What the main process shows and saves during the imitation of episodes."""
        self.rollouts = rollouts(run, self.session, check_every=config.sync_check_every)
        critic = self._local.critic
        self._controller = Controller(
            collector=collector,
            rollouts=self.rollouts,
            update=self.update,
            session=self.session,
            report=run,
            memory=PhaseMemory(run.config.model.device),
            critic_state=critic.state if critic is not None else None,
            warm_up=WarmUpPhase(
                self._imitate,
                self._warmup.steps,
                session=self.session,
                report=run,
                start_reinforcement=self._start_reinforcement,
            )
            if self._warmup.steps
            else None,
            schedule=Schedule(
                steps=steps,
                learning_rate=partial(
                    learning_rate,
                    steps=steps,
                    peak=config.learning_rate,
                    warmup_steps=config.warmup_of(steps),
                    schedule=config.schedule,
                ),
                seed=run.config.seed,
                critic_only=self._critic.warmup_steps if self._critic.model is not None else 0,
                evaluate_every=evaluation.every,
                evaluation_tasks=evaluation_tasks,
                success=evaluation.success,
                max_new_tokens=rollout.max_new_tokens,
                best=run.config.checkpoint.best,
                introduction=tuple(self._introduction()),
            ),
        )

    def train(self) -> Mapping[str, float]:
        """Train until the last step or until a stop is requested, and return the last metrics."""
        with self.rollouts, self.session.ranks as ranks, self.session:
            if ranks.is_main:
                return self._controller.train()
            ranks.serve()
            return {}

    def _policy_learner(self) -> PolicyLearner:
        """Return the learner of this process."""
        run, session, adapter = self._run, self.session, lora_table(self._run).adapter
        trained = session.trained
        reference = reference_policy(
            session.policy,
            self._algorithm.kl,
            checkpoints=all_checkpoints(run, session),
            keep=self._warmup.steps > 0,
            resumed=session.resumed,
            start=Path(adapter).expanduser() if adapter is not None else None,
        )
        if isinstance(reference, FrozenReference) and trained.strategy.shards:
            reference.shard(trained.strategy.shard, trained.policy)
        return PolicyLearner(
            trained,
            reference,
            Critic(self._critic, trained.policy, trained.strategy, self._config) if self._critic.model else None,
            Objective(self._loss, self._algorithm, comparable=comparable(run.config.rollout)),
            self._config,
            temperature=run.config.rollout.temperature,
            distillation=distillation(run, trained, self._algorithm.distillation),
            progress=run.progress,
        )

    def _restore(self, restored: Restored) -> None:
        state = restored.state["updates"]
        self.update.restore(state)
        critic = self._local.critic
        if critic is not None and "critic" in state:
            critic.restore(state["critic"])
        elif critic is not None:
            self._run.say("critic    initialised anew: the checkpoint has no critic")

    def _introduction(self) -> Iterator[str]:
        config, group_size = self._config, self._run.config.rollout.group_size
        updates = self.update.updates_per_rollout
        policy = "strictly on-policy" if updates == 1 else "off-policy after the first"
        if ahead := self._run.config.schedule.ahead:
            policy = f"off-policy, with sampling {counted(ahead, 'step')} ahead"
        yield (
            f"step      {counted(config.tasks_per_step, 'task')} × {counted(group_size, 'trajectory')}; "
            f"{counted(updates, 'optimiser update')}, {policy}"
        )
        yield f"algorithm {description(self._run)}"

    # Warm-up

    def _imitate(self, meter: Meter, *, done: int, finished: Callable[[int], None]) -> None:
        """Train on the demonstrations that the policy can imitate; see `WarmUpPhase`."""
        run, session = self._run, self.session
        if not isinstance(session.policy, TokenPolicy):
            self._shown = {"meter": meter, "finished": finished}
            session.ranks.call_all("imitate_episodes", done)
            return
        warm_up(
            self._learner,
            run.dataset,
            self.rollouts.chat_format,
            self._warmup,
            self._config,
            seed=run.config.seed,
            say=run.update,
            meter=meter,
            done=done,
            finished=finished,
            stopped=session.stopping,
        )

    def _imitate_episodes(self, done: int) -> None:
        """Imitate recorded episodes with a control policy. All processes call it together."""
        run, trained = self._run, self.session.trained
        spec = policy_spec(run)
        assert spec is not None, "a policy without tokens has a spec"
        imitate = run.registry.load_for("policy", spec, spec.warm_up)
        imitate(
            trained,
            run,
            self._warmup,
            self._config,
            seed=run.config.seed,
            say=run.update,
            done=done,
            stopped=lambda: trained.processes.any(run.stop_requested),
            check=require_finite,
            **self._shown,
        )

    def _start_reinforcement(self) -> None:
        """Start from the policy after the warm-up, which is then the reference of the KL term, too."""
        self._learner.begin_reinforcement()
        if self._local.reference is not None and self._algorithm.kl.reference is None:
            self.session.save_reference()
