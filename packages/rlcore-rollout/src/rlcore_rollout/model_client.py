"""The connection of an agent loop to its engine: in tokens, for training, or in messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from rlcore.contracts import ChatEngine, ChatFormat, Engine, RendersImages
from rlcore.episodes.calls import CallFailed, call
from rlcore.errors import ContextFullError, EngineError
from rlcore.images import ImageProcessor
from rlcore.plugin_calls import error_text, is_interrupt
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
from rlcore.types.checking import flaw_in_answer, flaw_in_chat_completion, flaw_in_completion

from rlcore_rollout.images import Fit, checked
from rlcore_rollout.media import check_media
from rlcore_rollout.parsers.declared_types import with_declared_types
from rlcore_rollout.trajectory_builder import End, Record

T = TypeVar("T")
Rendered = tuple[TokenIds, Sequence[MediaSpan]]
"""Ids, and the images among them; offsets count from the first id."""


class ModelClient(Protocol):
    """The connection to one engine, shared by all trajectories."""

    @property
    def engine(self) -> Engine | ChatEngine:
        """The engine."""
        ...

    @property
    def max_context_tokens(self) -> int:
        """The longest conversation."""
        ...

    @property
    def placeholder_token_ids(self) -> tuple[int, ...]:
        """The tokens that mark images, which are not sampled."""
        ...

    @property
    def fit(self) -> Fit | None:
        """Makes an image what the model sees; None if the model sees no images."""
        ...

    def observe(self, record: Record, observation: Observation) -> None:
        """Append an observation with fitted images, in a new segment if it rewrites the context.

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
    vocabulary: int = 2**31
    """Number of token ids of the model."""
    engine_name: str = "the engine"
    """For messages, with its plugin."""
    format_name: str = "the chat format"
    _image_format: RendersImages | None = field(init=False, default=None)
    """The chat format if it renders images. Checking a protocol is slow, so it is done once."""

    def __post_init__(self) -> None:
        chat_format: object = self.chat_format
        if isinstance(chat_format, RendersImages) and chat_format.image_processor is not None:
            object.__setattr__(self, "_image_format", chat_format)

    @property
    def placeholder_token_ids(self) -> tuple[int, ...]:
        """The tokens that mark images, which are not sampled; none if the model sees no images."""
        return self._image_format.placeholder_token_ids if self._image_format is not None else ()

    @property
    def fit(self) -> Fit | None:
        """The model's image processor."""
        return self._processor.fit if self._processor is not None else None

    @property
    def _processor(self) -> ImageProcessor | None:
        return self._image_format.image_processor if self._image_format is not None else None

    def observe(self, record: Record, observation: Observation) -> None:
        """Append an observation if the model can still respond to it; otherwise, append only its messages."""
        new = not record.segments or observation.context is not None
        context = observation.context or ()
        images = record.images.of((*context, *observation.messages))
        if new:
            ids, media = self._prompt(record, (*context, *observation.messages), images)
        else:
            ids, media = self._observation(observation.messages, record.segment.last_turn_ids, images)
        length = len(ids) if new else len(ids) + len(record.segment)
        if length >= self.max_context_tokens:
            record.add_unseen(observation.messages)
            raise End(Stop.LENGTH, tokens=length)
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
                self.engine_name, ask, prompt, sampling, timeout_s=timeout_s, until=until, session=session
            )
        except CallFailed as failed:
            raise _engine_failure(failed, until) from failed
        if flaw := self.flaw_in(completion, sampling):
            raise End.failed(Boundary.ENGINE, f"{self.engine_name} returned {flaw}")
        message: Message = self._render(self.chat_format.parse, completion.token_ids, completion.finish_reason)
        if flaw := flaw_in_answer(message):
            raise End.failed(Boundary.ENGINE, f"{self.format_name} parsed a completion to {flaw}")
        message = with_declared_types(message, record.tools)
        record.add_completion(completion, message)
        if written := sum(map(completion.token_ids.count, self.placeholder_token_ids)):
            record.count("placeholder_tokens", float(written))
        return message, completion.finish_reason

    def flaw_in(self, completion: Completion, sampling: Sampling) -> str | None:
        """The reason why a completion is invalid; None when it is valid."""
        if flaw := flaw_in_completion(completion):
            return flaw
        if (count := len(completion.token_ids)) > sampling.max_new_tokens:
            return f"{count} tokens, more than max_new_tokens={sampling.max_new_tokens}"
        return self._outside(completion.token_ids)

    def _prompt(self, record: Record, messages: Sequence[Message], images: Mapping[str, bytes]) -> Rendered:
        if self._image_format is not None:
            return self._render(
                self._with_images, self._image_format.prompt_with_images, images, messages, record.tools
            )
        self._refuse(images)
        return self._render(self._text_alone, self.chat_format.prompt, messages, record.tools)

    def _observation(
        self, messages: Sequence[Message], completion_ids: Sequence[int], images: Mapping[str, bytes]
    ) -> Rendered:
        if self._image_format is not None:
            return self._render(
                self._with_images, self._image_format.observation_with_images, images, messages, completion_ids
            )
        self._refuse(images)
        return self._render(self._text_alone, self.chat_format.observation, messages, completion_ids)

    def _refuse(self, images: Mapping[str, bytes]) -> None:
        if images:
            raise End.failed(Boundary.ENVIRONMENT, f"{self.format_name} cannot show images")

    def _text_alone(self, function: Callable[..., Sequence[int]], *arguments: Any) -> Rendered:
        return self._ids(function(*arguments)), ()

    def _with_images(
        self,
        function: Callable[..., tuple[Sequence[int], Sequence[MediaSpan]]],
        images: Mapping[str, bytes],
        messages: Sequence[Message],
        second: Sequence[Any],
    ) -> Rendered:
        """The rendered messages, after a check that every image has its tokens."""
        ids, media = function(messages, second, images)
        placed, wanted = [span.sha256 for span in media], [name for message in messages for name in message.images]
        if placed != wanted:
            raise ValueError(f"it placed {len(placed)} images, but the messages have {len(wanted)}")
        checked_ids = self._ids(ids)
        if self._processor is not None:
            placeholder = self.placeholder_token_ids[0]
            check_media(checked_ids, media, images, placeholder=placeholder, processor=self._processor)
        return checked_ids, media

    def _ids(self, answer: object) -> TokenIds:
        # A generator may never end. Most answers are lists, which are recognised faster than other sequences.
        if not isinstance(answer, (list, Sequence)) or isinstance(answer, (str, bytes)):
            raise TypeError(f"it returned a {type(answer).__name__} instead of a list of ids")
        ids = TokenIds(answer)
        if ids and (flaw := self._outside(ids)):
            raise ValueError(f"it returned {flaw}")
        return ids

    def _outside(self, ids: TokenIds) -> str | None:
        unsigned = ids.memory.cast("B").cast("I")  # a negative id becomes a large one
        if max(unsigned.tolist()) < self.vocabulary:
            return None
        smallest, largest = min(ids), max(ids)
        return f"the ids {smallest} to {largest}; the model has ids from 0 to {self.vocabulary - 1}"

    def _render(self, function: Callable[..., T], *arguments: Any) -> T:
        try:
            return function(*arguments)
        except BaseException as error:
            if is_interrupt(error):
                raise
            # The cause may be the observation of the environment as well.
            message = f"{self.format_name} cannot render the messages: {error_text(error)}"
            raise End.failed(Boundary.ENVIRONMENT, message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatClient:
    """Sends the whole conversation to the engine each time. The server reports token counts afterwards."""

    engine: ChatEngine
    max_context_tokens: int
    engine_name: str = "the engine"
    """For messages, with its plugin."""
    placeholder_token_ids: tuple[int, ...] = ()
    """None: the server renders images."""

    @property
    def fit(self) -> Fit:
        """Sends images as they are."""
        return checked

    def observe(self, record: Record, observation: Observation) -> None:
        """Append an observation."""
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
        images = record.images.of(segment.messages)
        given: dict[str, Any] = {"images": images} if images else {}
        try:
            completion: ChatCompletion = await call(
                self.engine_name,
                ask,
                segment.messages,
                record.tools,
                sampling,
                timeout_s=timeout_s,
                until=until,
                session=session,
                **given,
            )
        except CallFailed as failed:
            if isinstance(failed.__cause__, ContextFullError) and any(turn.kind == "policy" for turn in segment.turns):
                raise End(Stop.LENGTH) from failed
            raise _engine_failure(failed, until) from failed
        if flaw := flaw_in_chat_completion(completion):
            raise End.failed(Boundary.ENGINE, f"{self.engine_name} returned {flaw}")
        record.add_completion(completion, completion.message)
        return completion.message, completion.finish_reason


def _within(sampling: Sampling, room: int) -> Sampling:
    return replace(sampling, max_new_tokens=room) if room < sampling.max_new_tokens else sampling


def _engine_failure(failed: CallFailed, until: float) -> End:
    """The end of an episode after a failed call of the engine. An `EngineError` keeps its message."""
    late = failed.timed_out and time.monotonic() >= until
    text = str(failed.__cause__ if isinstance(failed.__cause__, EngineError) else failed)
    return End.failed(Boundary.TIMEOUT if late else Boundary.ENGINE, text)
