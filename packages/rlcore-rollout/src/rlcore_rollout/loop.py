"""One trajectory: the environment shows, the engine continues, until the end.

Whatever fails is data: the trajectory ends with a reason and a sentence, and the others never notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from rlcore.calls import CallFailed, call
from rlcore.contracts import Environment
from rlcore.types import EndReason, Observation, Sampling, Step, Task, Trajectory

from rlcore_rollout.record import End, Record
from rlcore_rollout.speech import Speech


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a trajectory may take."""

    environment_timeout_s: float
    engine_timeout_s: float
    trajectory_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoop:
    """What all trajectories of a run share.

    Attributes:
        make_environment: makes a new environment, for one trajectory
        speech: how all of them speak with the engine
        limits: what each may use
        blocking: the environment's plain methods run in threads
    """

    make_environment: Callable[[], Environment]
    speech: Speech
    limits: Limits
    blocking: bool = False

    async def run(
        self, task: Task, *, sibling: int, environment_seed: int, sampling: Sampling, session: str
    ) -> Trajectory:
        """Act on ``task`` once.

        A generation that is cut by its token limit ends the trajectory as ``length``: its text is kept and scored, its
        calls are not read and the environment does not see it. So does a context that leaves no room for a token.
        Messages that come after the last generation have no tokens, as the model never saw them. ``metrics`` holds
        ``turns``, ``step_reward`` (the sum of the steps' rewards, where the environment gives any), the sums of the
        numbers in the steps' ``info``, and of an engine that speaks messages the tokens that it counted.
        """
        record = Record()
        until = asyncio.get_running_loop().time() + self.limits.trajectory_timeout_s
        closing: list[str] = []
        try:
            try:
                await self._episode(record, task, environment_seed, sampling, session, until, closing)
            finally:
                await self._tidy("release", self.speech.engine.release, session, threaded=False, closing=closing)
        except End as end:
            return Trajectory(
                task_id=task.id,
                sibling=sibling,
                token_ids=tuple(record.token_ids),
                loss_mask=tuple(record.loss_mask),
                logprobs=tuple(record.logprobs),
                turns=tuple(record.turns),
                end_reason=end.reason,
                error="; ".join(filter(None, [end.error, *closing])) or None,
                tools=record.tools,
                metrics=record.metrics,
            )

    async def _episode(
        self,
        record: Record,
        task: Task,
        seed: int,
        sampling: Sampling,
        session: str,
        until: float,
        closing: list[str],
    ) -> NoReturn:
        environment = await self._ask("making the environment", self.make_environment, until=until)
        try:
            observation = await self._ask("reset", environment.reset, task, until=until, seed=seed)
            _expect("reset", observation, Observation)
            record.tools = observation.tools
            while True:
                self.speech.show(record, observation)
                timeout_s = self.limits.engine_timeout_s
                action, finish_reason = await self.speech.answer(
                    record, sampling, session, timeout_s=timeout_s, until=until
                )
                if finish_reason == "length":
                    raise End(EndReason.LENGTH)
                step = await self._ask("step", environment.step, action, until=until)
                _expect("step", step, Step)
                record.judged(step)
                observation = step.observation
                if step.terminated or step.truncated or step.end_reason is not None:
                    if observation.messages:
                        record.shown(observation.messages, [])
                    raise End(step.end_reason or (EndReason.DONE if step.terminated else EndReason.MAX_TURNS))
        finally:
            await self._tidy("close", environment.close, threaded=self.blocking, closing=closing)

    async def _ask(self, name: str, method: Callable[..., Any], *arguments: Any, until: float, **keywords: Any) -> Any:
        """Call the environment; a failure ends the trajectory."""
        timeout_s, threaded = self.limits.environment_timeout_s, self.blocking
        try:
            return await call(name, method, *arguments, timeout_s=timeout_s, until=until, threaded=threaded, **keywords)
        except CallFailed as failure:
            reason = EndReason.TIMEOUT if failure.timed_out else EndReason.ENVIRONMENT_ERROR
            raise End(reason, str(failure)) from failure

    async def _tidy(
        self, name: str, method: Callable[..., Any], *arguments: Any, threaded: bool, closing: list[str]
    ) -> None:
        """Free something; a failure is told but changes nothing."""
        try:
            await call(name, method, *arguments, timeout_s=self.limits.environment_timeout_s, threaded=threaded)
        except CallFailed as failure:
            closing.append(str(failure))


def _expect(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        found = type(value).__name__
        raise End(EndReason.ENVIRONMENT_ERROR, f"{name} must return a {kind.__name__}, it returned a {found}")
