"""How an agent loop speaks with its engine: in tokens, which can be trained on, or in messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rlcore.calls import CallFailed, call
from rlcore.contracts import ChatEngine, ChatFormat, Engine
from rlcore.errors import ContextFullError, EngineError
from rlcore.types import ChatCompletion, Completion, EndReason, FinishReason, Message, Observation, Sampling

from rlcore_rollout.record import End, Record


class Speech(Protocol):
    """One of the two ways; shared by all trajectories."""

    @property
    def engine(self) -> Engine | ChatEngine:
        """Who is spoken with."""
        ...

    def show(self, record: Record, observation: Observation) -> None:
        """Append an observation; raises `End` when the model cannot answer it any more."""
        ...

    async def answer(
        self, record: Record, sampling: Sampling, session: str, *, timeout_s: float, until: float
    ) -> tuple[Message, FinishReason]:
        """Have the model continue and append what it wrote; raises `End` when the engine fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpeech:
    """Token in, token out: sampled ids and rendered observations are appended, nothing is tokenised twice."""

    engine: Engine
    chat_format: ChatFormat
    max_context_tokens: int

    def show(self, record: Record, observation: Observation) -> None:
        """Append an observation, if the model can still answer it."""
        if record.turns:
            last = record.turns[-1]
            completion_ids = tuple(record.token_ids[last.start : last.end])
            ids = _render(self.chat_format.observation, observation.messages, completion_ids)
        else:
            ids = _render(self.chat_format.prompt, observation.messages, observation.tools)
        if len(record.token_ids) + len(ids) >= self.max_context_tokens:
            record.shown(observation.messages, [])
            raise End(EndReason.LENGTH)
        record.shown(observation.messages, ids)

    async def answer(
        self, record: Record, sampling: Sampling, session: str, *, timeout_s: float, until: float
    ) -> tuple[Message, FinishReason]:
        """Sample a completion and read it."""
        sampling = _within(sampling, self.max_context_tokens - len(record.token_ids))
        prompt_ids = tuple(record.token_ids)
        ask = self.engine.generate
        completion: Completion = await _ask(
            ask, prompt_ids, sampling, session=session, timeout_s=timeout_s, until=until
        )
        if flaw := _flaw(completion, sampling):
            raise End(EndReason.ENGINE_ERROR, f"the engine answered {flaw}")
        message = _render(self.chat_format.parse, completion.token_ids, completion.finish_reason)
        record.sampled(completion, message)
        return message, completion.finish_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpeech:
    """The engine is sent the whole conversation each time. How long it is, it alone knows and tells afterwards."""

    engine: ChatEngine
    max_context_tokens: int

    def show(self, record: Record, observation: Observation) -> None:
        """Append an observation."""
        record.shown(observation.messages, [])

    async def answer(
        self, record: Record, sampling: Sampling, session: str, *, timeout_s: float, until: float
    ) -> tuple[Message, FinishReason]:
        """Ask for a message. A context that is full ends as ``length``, unless not even the task fits."""
        room = self.max_context_tokens - record.context_tokens
        if room <= 0:
            raise End(EndReason.LENGTH)
        sampling, ask = _within(sampling, room), self.engine.chat
        try:
            completion: ChatCompletion = await _ask(
                ask, record.messages, record.tools, sampling, session=session, timeout_s=timeout_s, until=until
            )
        except End as end:
            full = isinstance(_reason(end), ContextFullError)
            if full and any(turn.kind == "policy" for turn in record.turns):
                raise End(EndReason.LENGTH) from end
            raise
        record.said(completion)
        return completion.message, completion.finish_reason


def _within(sampling: Sampling, room: int) -> Sampling:
    return replace(sampling, max_new_tokens=room) if room < sampling.max_new_tokens else sampling


async def _ask(function: Callable[..., Any], *arguments: Any, timeout_s: float, until: float, session: str) -> Any:
    """Call the engine; a failure ends the trajectory. What it says on purpose is told in its own words."""
    try:
        return await call("the engine", function, *arguments, timeout_s=timeout_s, until=until, session=session)
    except CallFailed as failure:
        late = failure.timed_out and asyncio.get_running_loop().time() >= until
        text = str(failure.__cause__ if isinstance(failure.__cause__, EngineError) else failure)
        raise End(EndReason.TIMEOUT if late else EndReason.ENGINE_ERROR, text) from failure


def _reason(end: End) -> BaseException | None:
    """What the engine itself raised."""
    return end.__cause__.__cause__ if end.__cause__ is not None else None


def _render(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        # The format is trusted code: what it cannot render is what the environment gave it.
        raise End(EndReason.ENVIRONMENT_ERROR, f"the chat format refused: {type(error).__name__}: {error}") from error


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
