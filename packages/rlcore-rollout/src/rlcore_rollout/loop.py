"""One trajectory: the environment shows, the engine continues, the chat format reads, until the end.

Token in, token out: sampled ids and rendered observations are appended as they are; nothing is tokenised twice.
Whatever fails is data: the trajectory ends with a reason and a sentence, and the others never notice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NoReturn

from rlcore.contracts import ChatFormat, Engine, Environment
from rlcore.types import (
    Completion,
    EndReason,
    Message,
    Observation,
    Sampling,
    Step,
    Task,
    ToolSchema,
    Trajectory,
    Turn,
)

from rlcore_rollout.calls import CallFailed, call


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a trajectory may use."""

    max_context_tokens: int
    environment_timeout_s: float
    engine_timeout_s: float
    trajectory_timeout_s: float


class _End(Exception):
    """The trajectory is over."""

    def __init__(self, reason: EndReason, error: str | None = None):
        self.reason, self.error = reason, error
        super().__init__(reason)


@dataclass(slots=True)
class _Record:
    """A trajectory that is still growing."""

    token_ids: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    tools: tuple[ToolSchema, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)

    def shown(self, messages: tuple[Message, ...], ids: list[int]) -> None:
        """Append what the model is shown; no ids stand for messages that it never saw."""
        start = len(self.token_ids)
        self.token_ids += ids
        self.loss_mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.turns.append(Turn(kind="observation", start=start, end=len(self.token_ids), messages=messages))

    def sampled(self, completion: Completion, message: Message) -> None:
        """Append what the model wrote."""
        start = len(self.token_ids)
        self.token_ids += completion.token_ids
        self.loss_mask += [True] * len(completion.token_ids)
        self.logprobs += completion.logprobs
        turn = Turn(
            kind="policy",
            start=start,
            end=len(self.token_ids),
            messages=(message,),
            finish_reason=completion.finish_reason,
            policy_version=completion.policy_version,
        )
        self.turns.append(turn)
        self.add("turns", 1.0)

    def judged(self, step: Step) -> None:
        """Keep a step's reward on the turn that earned it, and the numbers of its info."""
        if step.reward is not None:
            if not (isinstance(step.reward, Real) and math.isfinite(step.reward)):
                raise _End(
                    EndReason.ENVIRONMENT_ERROR, f"step gave the reward {step.reward!r}, which is no finite number"
                )
            self.turns[-1] = replace(self.turns[-1], reward=float(step.reward))
            self.add("step_reward", float(step.reward))
        for name, value in step.info.items():
            if isinstance(value, Real) and math.isfinite(value):
                self.add(name, float(value))

    def add(self, name: str, value: float) -> None:
        self.metrics[name] = self.metrics.get(name, 0.0) + value


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLoop:
    """What all trajectories of a run share.

    Attributes:
        make_environment: makes a new environment, for one trajectory
        engine: serves all of them
        chat_format: messages to tokens and back
        limits: what each may use
        blocking: the environment's plain methods run in threads
    """

    make_environment: Callable[[], Environment]
    engine: Engine
    chat_format: ChatFormat
    limits: Limits
    blocking: bool = False

    async def run(
        self, task: Task, *, sibling: int, environment_seed: int, sampling: Sampling, session: str
    ) -> Trajectory:
        """Act on ``task`` once.

        A generation that is cut by its token limit ends the trajectory as ``length``: its text is kept and scored, its
        calls are not read and the environment does not see it. So does a context that leaves no room for a token.
        Messages that come after the last generation have no tokens, as the model never saw them. ``metrics`` holds
        ``turns``, ``step_reward`` (the sum of the steps' rewards, where the environment gives any) and the sums of the
        numbers in the steps' ``info``.
        """
        record = _Record()
        until = asyncio.get_running_loop().time() + self.limits.trajectory_timeout_s
        closing: list[str] = []
        try:
            try:
                await self._episode(record, task, environment_seed, sampling, session, until, closing)
            finally:
                await self._tidy("release", self.engine.release, session, threaded=False, closing=closing)
        except _End as end:
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
        record: _Record,
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
                self._show(record, observation)
                completion = await self._generate(record, sampling, session, until)
                action = self._render(self.chat_format.parse, completion.token_ids, completion.finish_reason)
                record.sampled(completion, action)
                if completion.finish_reason == "length":
                    raise _End(EndReason.LENGTH)
                step = await self._ask("step", environment.step, action, until=until)
                _expect("step", step, Step)
                record.judged(step)
                observation = step.observation
                if step.terminated or step.truncated or step.end_reason is not None:
                    if observation.messages:
                        record.shown(observation.messages, [])
                    raise _End(step.end_reason or (EndReason.DONE if step.terminated else EndReason.MAX_TURNS))
        finally:
            await self._tidy("close", environment.close, threaded=self.blocking, closing=closing)

    def _show(self, record: _Record, observation: Observation) -> None:
        """Append an observation, if the model can still answer it."""
        if record.turns:
            last = record.turns[-1]
            completion_ids = tuple(record.token_ids[last.start : last.end])
            ids = self._render(self.chat_format.observation, observation.messages, completion_ids)
        else:
            ids = self._render(self.chat_format.prompt, observation.messages, observation.tools)
        if len(record.token_ids) + len(ids) >= self.limits.max_context_tokens:
            record.shown(observation.messages, [])
            raise _End(EndReason.LENGTH)
        record.shown(observation.messages, ids)

    def _render(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            # The format is trusted code: what it cannot render is what the environment gave it.
            raise _End(
                EndReason.ENVIRONMENT_ERROR, f"the chat format refused: {type(error).__name__}: {error}"
            ) from error

    async def _generate(self, record: _Record, sampling: Sampling, session: str, until: float) -> Completion:
        room = self.limits.max_context_tokens - len(record.token_ids)
        if room < sampling.max_new_tokens:
            sampling = replace(sampling, max_new_tokens=room)
        prompt_ids = tuple(record.token_ids)
        generate, timeout_s = self.engine.generate, self.limits.engine_timeout_s
        try:
            completion = await call(
                "the engine", generate, prompt_ids, sampling, timeout_s=timeout_s, until=until, session=session
            )
        except CallFailed as failure:
            late = failure.timed_out and asyncio.get_running_loop().time() >= until
            raise _End(EndReason.TIMEOUT if late else EndReason.ENGINE_ERROR, str(failure)) from failure
        if flaw := _flaw(completion, sampling):
            raise _End(EndReason.ENGINE_ERROR, f"the engine answered {flaw}")
        return completion  # type: ignore[no-any-return]

    async def _ask(self, name: str, method: Callable[..., Any], *arguments: Any, until: float, **keywords: Any) -> Any:
        """Call the environment; a failure ends the trajectory."""
        timeout_s, threaded = self.limits.environment_timeout_s, self.blocking
        try:
            return await call(name, method, *arguments, timeout_s=timeout_s, until=until, threaded=threaded, **keywords)
        except CallFailed as failure:
            reason = EndReason.TIMEOUT if failure.timed_out else EndReason.ENVIRONMENT_ERROR
            raise _End(reason, str(failure)) from failure

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
        raise _End(EndReason.ENVIRONMENT_ERROR, f"{name} must return a {kind.__name__}, it returned a {found}")


def _flaw(completion: Completion, sampling: Sampling) -> str | None:
    """What is impossible about a completion, None when nothing is."""
    count = len(completion.token_ids)
    if count == 0:
        return "no token"
    if count > sampling.max_new_tokens:
        return f"{count} tokens where {sampling.max_new_tokens} were allowed"
    if len(completion.logprobs) != count:
        return f"{count} tokens with {len(completion.logprobs)} log-probabilities"
    if not all(map(math.isfinite, completion.logprobs)):
        return "a log-probability that is not finite"
    return None
