"""The record of a trajectory in progress, and its end."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rlcore.types import (
    Boundary,
    ChatCompletion,
    Completion,
    Failure,
    FrozenDict,
    Logprobs,
    LossMask,
    MediaSpan,
    Message,
    Observation,
    Prompt,
    Sampling,
    Segment,
    Step,
    Stop,
    TokenIds,
    ToolSchema,
    Turn,
    VersionSpan,
)
from rlcore.types.checking import is_finite

from rlcore_rollout.images import EpisodeImages, ImagePool

_NO_IMAGES: FrozenDict[str, bytes] = FrozenDict()


class End(Exception):
    """The episode is over. ``tokens`` is the length of a conversation that fills the context, if it is known."""

    def __init__(self, stop: Stop, failure: Failure | None = None, *, tokens: int | None = None):
        self.stop, self.failure, self.tokens = stop, failure, tokens
        super().__init__(stop if failure is None else str(failure))

    @classmethod
    def failed(cls, boundary: Boundary, message: str) -> End:
        """The episode ended with a failure."""
        return cls(Stop.CANCELLED, Failure(boundary=boundary, message=message))


@dataclass(slots=True)
class GrowingSegment:
    """A segment in progress. Turns have start = end = 0 if the engine uses messages instead of tokens."""

    context: tuple[Message, ...] = ()
    token_ids: array[int] = field(default_factory=lambda: array(TokenIds.TYPECODE))
    loss_mask: bytearray = field(default_factory=bytearray)
    logprobs: array[float] = field(default_factory=lambda: array(Logprobs.TYPECODE))
    turns: list[Turn] = field(default_factory=list)
    media: list[MediaSpan] = field(default_factory=list)
    counted_tokens: int = 0
    """Length of the conversation up to the last response, as reported by an engine that uses messages."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as the model sees it: the repeated context, then all turns."""
        return (*self.context, *(message for turn in self.turns for message in turn.messages))

    @property
    def last_turn_ids(self) -> list[int]:
        """The tokens of the last turn."""
        turn = self.turns[-1]
        return self.token_ids[turn.start : turn.end].tolist()

    def prompt(self, images: EpisodeImages) -> Prompt:
        """All tokens so far, with the images among them."""
        return Prompt(
            token_ids=TokenIds.from_bytes(self.token_ids.tobytes()),
            media=tuple(self.media),
            images=FrozenDict({span.sha256: images.used[span.sha256] for span in self.media})
            if self.media
            else _NO_IMAGES,
        )

    def add_observation(
        self, messages: tuple[Message, ...], token_ids: TokenIds | None = None, media: Iterable[MediaSpan] = ()
    ) -> None:
        """Append an observation. One without tokens is part of the conversation, but the model never saw it.

        The offsets of ``media`` count from the first of ``token_ids``.
        """
        start = len(self)
        if token_ids is not None:
            count = len(token_ids)
            self.token_ids.frombytes(token_ids.tobytes())
            self.loss_mask += bytes(count)
            self.logprobs.frombytes(bytes(count * self.logprobs.itemsize))
            self.media += [replace(span, offset=start + span.offset) for span in media]
        self.turns.append(Turn(kind="observation", start=start, end=len(self), messages=messages))

    def add_completion(self, completion: Completion | ChatCompletion, message: Message) -> None:
        """Append a response of the policy, as tokens or as a message."""
        start, version = len(self), 0
        versions: tuple[VersionSpan, ...] = ()
        if isinstance(completion, Completion):
            version, versions = completion.policy_version, completion.versions
            self.token_ids.frombytes(completion.token_ids.tobytes())
            self.loss_mask += b"\x01" * len(completion.token_ids)
            self.logprobs.frombytes(completion.logprobs.tobytes())
        else:
            self.counted_tokens = (completion.prompt_tokens or 0) + (completion.completion_tokens or 0)
        turn = Turn(
            kind="policy",
            start=start,
            end=len(self),
            messages=(message,),
            finish_reason=completion.finish_reason,
            policy_version=version,
            versions=versions,
        )
        self.turns.append(turn)

    def frozen(self) -> Segment:
        """The immutable segment."""
        return Segment(
            token_ids=TokenIds.from_bytes(self.token_ids.tobytes()),
            loss_mask=LossMask.from_bytes(bytes(self.loss_mask)),
            logprobs=Logprobs.from_bytes(self.logprobs.tobytes()),
            turns=tuple(self.turns),
            context=self.context,
            media=tuple(self.media),
        )


@dataclass(slots=True)
class Record:
    """The record of an episode in progress."""

    name: str = ""
    """The engine's session of the first segment."""
    images: EpisodeImages = field(default_factory=lambda: EpisodeImages(ImagePool()))
    segments: list[GrowingSegment] = field(default_factory=list)
    tools: tuple[ToolSchema, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    sampling: Sampling | None = None
    """The sampling parameters of all generations."""
    role: str = ""
    """As `Trajectory.role`."""
    stop: Stop | None = None
    """Why this role stopped, if not for the reason of the episode."""

    @property
    def segment(self) -> GrowingSegment:
        """The last segment, which still grows."""
        return self.segments[-1]

    @property
    def session(self) -> str:
        """The engine's session of this segment. Each segment has its own: prompts of a session extend each other."""
        return self.name if len(self.segments) < 2 else f"{self.name}/{len(self.segments) - 1}"

    async def enter(self, observation: Observation) -> Observation:
        """Add the images of an observation; returns it with references to the fitted images.

        Tool messages with an unusable image are counted as ``tool_errors``.

        Raises:
            End: an image is missing, one outside of a tool message is unreadable, or a message has the wrong type.
        """
        try:
            if _is_text(observation):
                return observation
            self.images.add(observation.images)
            context = None if observation.context is None else await self.images.enter(observation.context)
            known = self.images.tool_errors
            messages = await self.images.enter(observation.messages)
            if errors := self.images.tool_errors - known:
                self.count("tool_errors", float(errors))
            return replace(observation, context=context, messages=messages)
        except Exception as error:  # an observation may contain anything
            raise End.failed(Boundary.ENVIRONMENT, f"the observation cannot be used: {error}") from error

    def begin_segment(self, context: Sequence[Message] = ()) -> None:
        """Start a new segment."""
        self.segments.append(GrowingSegment(context=tuple(context)))

    def join(self, others: Iterable[Record]) -> None:
        """Append the segments, tools and counts of others. Of tools with the same name, the first one is kept."""
        tools = {tool.name: tool for tool in self.tools}
        for other in others:
            self.segments += other.segments
            for tool in other.tools:
                tools.setdefault(tool.name, tool)
            for name, value in other.metrics.items():
                self.count(name, value)
        self.tools = tuple(tools.values())

    def add_unseen(self, messages: tuple[Message, ...]) -> None:
        """Append messages that the model never saw."""
        if not self.segments:
            self.begin_segment()
        self.segment.add_observation(messages)

    def add_completion(self, completion: Completion | ChatCompletion, message: Message) -> None:
        """Append a response of the policy and count it."""
        self.segment.add_completion(completion, message)
        self.count("turns", 1.0)
        if isinstance(completion, ChatCompletion):
            if completion.prompt_tokens is not None:
                self.count("prompt_tokens", float(completion.prompt_tokens))
            if completion.completion_tokens is not None:
                self.count("completion_tokens", float(completion.completion_tokens))

    @property
    def answered(self) -> list[tuple[list[Turn], int]]:
        """The turns of the policy, each as the list that it is in and its index."""
        lists = [segment.turns for segment in self.segments]
        return [(turns, n) for turns in lists for n, turn in enumerate(turns) if turn.kind == "policy"]

    def add_step(self, step: Step) -> None:
        """Add a step's reward to that of the last answer, and the numbers of its info to the metrics. Raises `End`."""
        if step.reward is not None:
            turns, index = self.answered[-1]
            reward = (turns[index].reward or 0.0) + float(step.reward)
            if not is_finite(reward) or not is_finite(self.metrics.get("step_reward", 0.0) + float(step.reward)):
                raise End.failed(Boundary.ENVIRONMENT, "the sum of the rewards of the steps is not a finite number")
            turns[index] = replace(turns[index], reward=reward)
            self.count("step_reward", float(step.reward))
        for name, value in step.info.items():
            if isinstance(name, str) and is_finite(value):
                self.count(name, float(value))

    def count(self, name: str, value: float) -> None:
        """Add to a metric."""
        self.metrics[name] = self.metrics.get(name, 0.0) + value


def _is_text(observation: Observation) -> bool:
    """Whether there is no image to enter, as in most observations."""
    plain = not observation.images and observation.context is None
    return plain and not any(message.images for message in observation.messages)
