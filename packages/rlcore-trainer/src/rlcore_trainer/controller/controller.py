"""The controller of reinforcement learning: collect rollouts, update the policy, synchronise, evaluate, save.

It runs in the main process and contains no collective operation. Sampler and learner use all processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlcore.abilities import KeepsEvidence
from rlcore.errors import EngineError, NotScoredError
from rlcore.runs.machine import PhaseMemory
from rlcore.types import Group, RolloutRequest

from rlcore_trainer.controller.collection import Collector
from rlcore_trainer.controller.evidence import described, token_columns
from rlcore_trainer.controller.report import Report
from rlcore_trainer.controller.rollout_metrics import evaluation_metrics, rollout_metrics
from rlcore_trainer.controller.rollouts import PolicyRollouts, require_scores
from rlcore_trainer.controller.schedule import Schedule
from rlcore_trainer.controller.selection import Collected
from rlcore_trainer.controller.session import TrainingSession, require_measured
from rlcore_trainer.controller.stream import Stream
from rlcore_trainer.controller.updates import PolicyUpdate
from rlcore_trainer.controller.warmup_phase import WarmUpPhase

CHECKED = {
    "loss/total": "loss",
    "gradient_norm": "gradient norm",
    "critic/loss": "loss of the critic",
    "critic/gradient_norm": "gradient norm of the critic",
}
"""Names of the metrics of a step that must be finite."""
DECIDING = ("evaluation/accuracy", "evaluation/reward")
"""The metrics that decide the best step by default, most important first."""


class Controller:
    """Trains a policy from its own rollouts.

    All randomness is keyed by seed and step, so a resumed run gives the same results as an uninterrupted one.

    Args:
        collector: chooses the tasks and the groups of each step
        rollouts: samples trajectories
        update: updates the policy on the groups of a step
        session: completed steps and their checkpoints
        schedule: what happens at which step
        report: shows and stores metrics and trajectories
        memory: measures the memory of the phases
        warm_up: what precedes the first step
        critic_state: returns the state of the critic; None without one
    """

    def __init__(
        self,
        *,
        collector: Collector | Stream,
        rollouts: PolicyRollouts,
        update: PolicyUpdate,
        session: TrainingSession,
        schedule: Schedule,
        report: Report,
        memory: PhaseMemory,
        warm_up: WarmUpPhase | None = None,
        critic_state: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._collector, self._rollouts, self._update, self._session = collector, rollouts, update, session
        self._schedule, self._report, self._memory, self._warm_up = schedule, report, memory, warm_up
        self._critic_state = critic_state
        session.save_state_of(self)
        self._keeper = report if isinstance(report, KeepsEvidence) else None
        self._scored = session.resumed
        """Whether any rollout of this run has been scored."""

    def train(self) -> Mapping[str, float]:
        """Train until the last step or until a stop is requested, and return the last metrics."""
        if not self._session.resumed and not self._warmed_up():
            return {}
        try:
            with self._memory:
                return self._reinforce()
        except EngineError:
            self._session.save_unsaved()
            raise

    def state(self) -> Mapping[str, Any]:
        """Return the state of the updates; see `rlcore_trainer.controller.session.Resumable`."""
        critic = self._critic_state
        return {"updates": {**self._update.state(), **({} if critic is None else {"critic": critic()})}}

    def collection(self) -> Mapping[str, Any]:
        """Return the state of sampling after the last completed step."""
        return self._collector.state(self._session.progress.step)

    def _warmed_up(self) -> bool:
        """Complete the warm-up, if there is one. Return False after a stop."""
        return not self._session.stopping() if self._warm_up is None else self._warm_up.complete()

    def _reinforce(self) -> Mapping[str, float]:
        session, schedule = self._session, self._schedule
        metrics: dict[str, float] = {}
        self._rollouts.sync(0)
        if not session.resumed:
            if metrics := self._evaluate(0):
                self._report.log(0, metrics)
            if self._warm_up is not None and session.saves:
                session.save()
        session.introduce(schedule.introduction)
        for step in session.steps(schedule.steps):
            if (finished := self._step(step)) is None:
                break
            metrics = finished
            session.watch(metrics, default=DECIDING[0])
            self._report.log(step, metrics)
            session.save_when_due(step)
        if isinstance(self._collector, Stream) and (line := self._collector.summary()):
            self._report.say(line)
        # Save the last step, also after a stop.
        session.save_unsaved()
        return metrics

    def _step(self, step: int) -> dict[str, float] | None:
        """Collect, update, synchronise and evaluate. Return the metrics; None after a stop, which discards the step."""
        schedule, started, memory = self._schedule, time.perf_counter(), dict[str, float]()
        self._memory.take()
        rollout = self._collect(step)
        baselines = None if rollout is None else self._baselines(rollout.groups, step)
        if rollout is None or baselines is None:
            return None
        collected, memory["rollout"] = time.perf_counter(), self._memory.take()
        limit = schedule.max_new_tokens
        # All groups of a step may have been sampled in earlier ones. Their tokens have been counted then.
        measured = rollout.sampled or rollout.groups
        metrics = rollout_metrics(measured, success=schedule.success, max_new_tokens=limit)
        if not rollout.sampled:
            metrics |= {name: 0.0 for name in metrics if name.endswith("tokens/sampled")}
        metrics |= self._learn(rollout, baselines, step)
        updated, memory["update"] = time.perf_counter(), self._memory.take()
        self._session.advance(step)
        try:
            metrics |= self._rollouts.sync(step)
            synced, memory["sync"] = time.perf_counter(), self._memory.take()
            every = schedule.evaluate_every
            if every and (step % every == 0 or step == schedule.steps):
                metrics |= self._evaluate(step)
                memory["evaluation"] = self._memory.take()
        except EngineError:
            self._report.log(step, metrics)  # the update is complete and part of the next checkpoint
            raise
        times = {"rollout": collected - started, "update": updated - collected, "sync": synced - updated}
        metrics |= {f"memory/{part}_gib": most for part, most in memory.items()}
        metrics |= {f"time/{part}_s": seconds for part, seconds in times.items()}
        return metrics | {"time/step_s": synced - started}

    def _collect(self, step: int) -> Collected | None:
        """Collect and record the groups of a step; None after a stop."""
        if self._keeper is not None:
            self._keeper.begin_record(step, "train")
        rollout = (
            self._collector.collect(step, self._rollouts)
            if isinstance(self._collector, Stream)
            else self._collector.collect(step, self._rollouts.collect)
        )
        if rollout is not None and self._keeper is not None:
            version = self._session.policy.version
            notes, brought = described(rollout, step=step, version=version, too_few=self._update.too_few)
            self._keeper.describe_groups(step, notes, brought)
        if rollout is not None and rollout.sampled:
            self._report.record(step, "train", rollout.sampled)
            # Of a stream, the only group that ended during this step may be one whose episodes failed.
            self._require_scores([*rollout.sampled, *rollout.groups], f"step {step}")
        if rollout is not None and rollout.warning is not None:
            self._report.say(rollout.warning)
        return rollout

    def _baselines(self, groups: Sequence[Group], step: int) -> dict[tuple[int, str], float] | None:
        """Return the scores of greedy responses by group index and role, if the advantage needs them.

        None after a stop.
        """
        if not self._update.reads_baselines or not groups:
            return {}
        greedy = {"temperature": 0.0, "top_p": 1.0, "top_k": 0}
        tasks, seed = [group.task for group in groups], self._schedule.seed
        answers = self._rollouts.collect(
            RolloutRequest(tasks=tasks, group_size=1, seed=seed, step=step, purpose="baseline", sampling=greedy)
        )
        if answers is None:
            return None
        return {
            (index, one.role): one.reward
            for index, answer in enumerate(answers)
            for one in answer.trajectories
            if one.reward is not None
        }

    def _learn(self, rollout: Collected, baselines: Mapping[tuple[int, str], float], step: int) -> dict[str, float]:
        """Update the policy on the groups of a step."""
        schedule, session = self._schedule, self._session
        rate = schedule.learning_rate(step)
        result = self._update.run(
            rollout.groups,
            learning_rate=rate,
            key=(schedule.seed, step),
            baselines=baselines,
            critic_only=step <= schedule.critic_only,
        )
        checked = {CHECKED[name]: value for name, value in result.metrics.items() if name in CHECKED}
        unchanged = not result.updates and self._critic_state is None
        session.require_finite(checked, f"step {step}", unchanged=unchanged)
        if self._keeper is not None and result.tokens is not None:
            note = {"step": step, "version": session.policy.version, "updates": result.updates}
            self._keeper.record_tokens(step, token_columns(result.tokens, rollout.origins), note)
        session.policy.version += result.updates
        numbers = {"learning_rate": rate, "data/epoch": float(rollout.epoch), "updates": float(result.updates)}
        return {**rollout.metrics, **result.metrics, **numbers}

    def _evaluate(self, step: int) -> dict[str, float]:
        """Evaluate the held-out tasks, and record the step if it is the best so far."""
        tasks, session = self._schedule.evaluation_tasks, self._session
        if not tasks:
            return {}
        started = time.perf_counter()
        groups = self._rollouts.evaluate(step, tasks)
        if not self._scored and not session.stopping():
            self._require_scores(groups, "the first evaluation")
        metrics = evaluation_metrics(groups, success=self._schedule.success)
        if not session.stopping():
            require_measured(metrics, self._schedule.best)
        session.judge(step, metrics, default=DECIDING)
        return metrics | {"time/evaluation_s": time.perf_counter() - started}

    def _require_scores(self, groups: Sequence[Group], what: str) -> None:
        """Stop a run without scored trajectories, after saving its completed steps."""
        try:
            require_scores(groups, what)
        except NotScoredError:
            if self._scored:
                self._session.save_unsaved()
            raise
        self._scored = True
