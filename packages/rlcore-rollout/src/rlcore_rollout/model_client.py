"""The connection of an agent loop to its engine: in tokens, for training, or in messages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from rlcore.contracts import ChatEngine, ChatFormat, Engine, RendersImages
from rlcore.episodes.calls import CallFailed, call
from rlcore.errors import ContextFullError, EngineError
from rlcore.types import (
    Boundary,
    ChatCompletion,
    Completion,
    FinishReason,
    MediaSpan,
    Message,
    Observation,
    Sampling,
    Stop,
    TokenIds,
)

from rlcore_rollout.record import End, Record

T = TypeVar("T")
Rendered = tuple[TokenIds, Sequence[MediaSpan]]
"""Ids, and the images among them; offsets count from the first id."""


class ModelClient(Protocol):
    """The connection to one engine, shared by all trajectories."""

    @property
    def engine(self) -> Engine | ChatEngine:
        """The engine."""
        ...

    def observe(self, record: Record, observation: Observation) -> None:
        """Append an observation, in a new segment if it rewrites the context.

        Raises `End` when the model cannot respond to it, or when the engine cannot read it.
        """
        ...

    async def generate(
        self, record: Record, sampling: Sampling, *, timeout_s: float, until: float
    ) -> tuple[Message, FinishReason]:
        """Sample the model's response and append it. Raises `End` when the engine fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenClient:
    """Appends sampled ids and rendered observations. Nothing is tokenised twice."""

    engine: Engine
    chat_format: ChatFormat
    max_context_tokens: int
    _image_format: RendersImages | None = field(init=False)
    """The chat format if it renders images. Checking a protocol is slow, so it is done once."""

    def __post_init__(self) -> None:
        found = self.chat_format if isinstance(self.chat_format, RendersImages) else None
        object.__setattr__(self, "_image_format", found)

    def observe(self, record: Record, observation: Observation) -> None:
        """Append an observation if the model can still respond to it; otherwise, append only its messages."""
        images = record.take_images(observation)
        new = not record.segments or observation.context is not None
        context = observation.context or ()
        if new:
            ids, media = self._prompt(record, (*context, *observation.messages), images)
        else:
            ids, media = self._observation(observation.messages, record.segment.last_turn_ids, images)
        length = len(ids) if new else len(ids) + len(record.segment)
        if length >= self.max_context_tokens:
            record.add_unseen(observation.messages)
            raise End(Stop.LENGTH)
        if new:
            record.begin_segment(context)
        record.segment.add_observation(observation.messages, ids, media)

    async def generate(
        self, record: Record, sampling: Sampling, *, timeout_s: float, until: float
    ) -> tuple[Message, FinishReason]:
        """Sample a completion and parse it."""
        sampling = _within(sampling, self.max_context_tokens - len(record.segment))
        prompt, ask, session = record.segment.prompt(record.images), self.engine.generate, record.session
        try:
            completion: Completion = await call(
                "the engine", ask, prompt, sampling, timeout_s=timeout_s, until=until, session=session
            )
        except CallFailed as failed:
            raise _engine_failure(failed, until) from failed
        if flaw := _flaw(completion, sampling):
            raise End.failed(Boundary.ENGINE, f"the engine returned {flaw}")
        message: Message = _render(self.chat_format.parse, completion.token_ids, completion.finish_reason)
        record.add_completion(completion, message)
        return message, completion.finish_reason

    def _prompt(self, record: Record, messages: Sequence[Message], images: Mapping[str, bytes]) -> Rendered:
        if self._image_format is not None:
            return _render(_with_images, self._image_format.prompt_with_images, messages, record.tools, images)
        self._refuse(images)
        return _render(_text_alone, self.chat_format.prompt, messages, record.tools)

    def _observation(
        self, messages: Sequence[Message], completion_ids: Sequence[int], images: Mapping[str, bytes]
    ) -> Rendered:
        if self._image_format is not None:
            return _render(_with_images, self._image_format.observation_with_images, messages, completion_ids, images)
        self._refuse(images)
        return _render(_text_alone, self.chat_format.observation, messages, completion_ids)

    def _refuse(self, images: Mapping[str, bytes]) -> None:
        if images:
            name = type(self.chat_format).__name__
            raise End.failed(Boundary.ENVIRONMENT, f"the chat format {name} cannot show images")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatClient:
    """Sends the whole conversation to the engine each time. The server reports token counts afterwards."""

    engine: ChatEngine
    max_context_tokens: int

    def observe(self, record: Record, observation: Observation) -> None:
        """Append an observation."""
        record.take_images(observation)
        if not record.segments or observation.context is not None:
            record.begin_segment(observation.context or ())
        record.segment.add_observation(observation.messages)

    async def generate(
        self, record: Record, sampling: Sampling, *, timeout_s: float, until: float
    ) -> tuple[Message, FinishReason]:
        """Request a message. A full context ends the episode as ``length``, or fails it before the first response."""
        segment = record.segment
        room = self.max_context_tokens - segment.counted_tokens
        if room <= 0:
            raise End(Stop.LENGTH)
        sampling, ask, session = _within(sampling, room), self.engine.chat, record.session
        try:
            completion: ChatCompletion = await call(
                "the engine",
                ask,
                segment.messages,
                record.tools,
                sampling,
                timeout_s=timeout_s,
                until=until,
                session=session,
            )
        except CallFailed as failed:
            if isinstance(failed.__cause__, ContextFullError) and any(turn.kind == "policy" for turn in segment.turns):
                raise End(Stop.LENGTH) from failed
            raise _engine_failure(failed, until) from failed
        record.add_completion(completion, completion.message)
        return completion.message, completion.finish_reason


def _within(sampling: Sampling, room: int) -> Sampling:
    return replace(sampling, max_new_tokens=room) if room < sampling.max_new_tokens else sampling


def _engine_failure(failed: CallFailed, until: float) -> End:
    """The end of an episode after a failed call of the engine. An `EngineError` keeps its message."""
    late = failed.timed_out and time.monotonic() >= until
    text = str(failed.__cause__ if isinstance(failed.__cause__, EngineError) else failed)
    return End.failed(Boundary.TIMEOUT if late else Boundary.ENGINE, text)


def _render(function: Callable[..., T], *arguments: Any) -> T:
    try:
        return function(*arguments)
    except Exception as error:
        # The format is trusted code, so the cause is the observation of the environment.
        message = f"the chat format cannot render the messages: {type(error).__name__}: {error}"
        raise End.failed(Boundary.ENVIRONMENT, message) from error


def _text_alone(function: Callable[..., Sequence[int]], *arguments: Any) -> Rendered:
    return TokenIds(function(*arguments)), ()


def _with_images(
    function: Callable[..., tuple[Sequence[int], Sequence[MediaSpan]]], messages: Sequence[Message], *arguments: Any
) -> Rendered:
    """The rendered messages, after a check that every image has tokens."""
    ids, media = function(messages, *arguments)
    placed, wanted = [span.sha256 for span in media], [name for message in messages for name in message.images]
    if placed != wanted:
        raise ValueError(f"it placed {len(placed)} images, but the messages have {len(wanted)}")
    return TokenIds(ids), media


def _flaw(completion: Completion, sampling: Sampling) -> str | None:
    """The reason why a completion is invalid; None when it is valid."""
    count = len(completion.token_ids)
    if count == 0:
        return "no token"
    if count > sampling.max_new_tokens:
        return f"{count} tokens, more than max_new_tokens={sampling.max_new_tokens}"
    if len(completion.logprobs) != count:
        return f"{count} tokens with {len(completion.logprobs)} log-probabilities"
    if not all(map(math.isfinite, completion.logprobs)):
        return "a log-probability that is not finite"
    return None
