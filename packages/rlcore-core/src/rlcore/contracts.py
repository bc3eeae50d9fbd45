"""The protocols that plugins implement.

Methods of environments, tools and rewards may be plain or ``async``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from rlcore.errors import UserError
from rlcore.types import (
    ChatCompletion,
    CodeResult,
    Completion,
    FrozenDict,
    Group,
    MediaSpan,
    Message,
    Observation,
    Prompt,
    RewardResult,
    RolloutKey,
    RolloutRequest,
    Sampling,
    Step,
    Task,
    ToolCall,
    ToolSchema,
    Trajectory,
)

if TYPE_CHECKING:
    from rlcore.images import ImageProcessor


class Environment(Protocol):
    """One episode of one task. An object is created for each episode, used once and always closed.

    The agent loop runs the plain methods of a ``blocking`` environment in threads. An exception ends the episode with a
    `Failure` at the boundary ``environment``: the trajectory is not scored, and others are not affected.
    """

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """The first observation. Siblings of a group get the same seed and must see the same observation.

        A ``reset`` that declares a keyword parameter ``context`` receives the `EpisodeContext`, which the tools and
        rewards of the episode share.
        """
        ...

    async def step(self, action: Message) -> Step:
        """Answer the assistant's message, whose tool calls are already parsed. Returns only new messages.

        An environment that rewrites the conversation sets `Observation.context`.
        """
        ...

    async def close(self) -> None:
        """Free the resources of the episode. Called exactly once, also after a failure or a cancellation."""
        ...


@runtime_checkable
class Solvable(Protocol):
    """An environment that provides ideal episodes, for `rlcore.testing`."""

    def oracle(self, task: Task) -> Sequence[Message]:
        """The assistant's messages of an episode with the maximal reward. May be ``async``."""
        ...


@runtime_checkable
class ScoresCut(Protocol):
    """An environment that scores episodes which end at a token limit."""

    def cut(self, written: Message | None) -> Any:
        """Called instead of the next ``step``. Returns a `Step`, or None for no reward. May be ``async``.

        ``written`` is the answer that was cut; None if the conversation had no room for another answer.
        """
        ...


class Reward(Protocol):
    """Scores a finished trajectory. A reward of weight 0 is a metric.

    A reward that declares a parameter ``context`` receives the `EpisodeContext` of the episode, or a new one when a
    stored trajectory is scored again. A group reward receives a separate context.
    """

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult | float:
        """The result; a float is short for ``RewardResult(value=…)``. An exception means *not scored*, not zero."""
        ...


class Complete(Protocol):
    """Samples further completions of the run's model, which are not part of a trajectory and not trained on."""

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        images: Iterable[bytes] = (),
        count: int = 1,
        sampling: Mapping[str, Any] = FrozenDict(),
    ) -> Sequence[ChatCompletion]:
        """As `EpisodeContext.complete`."""
        ...


class GroupReward(Protocol):
    """Scores the trajectories of one task together (``RewardSpec(scope="group")``)."""

    async def __call__(self, group: Group) -> Sequence[RewardResult | float]:
        """One result per trajectory, in order."""
        ...


class Dataset(Protocol):
    """A source of tasks, created from its options in ``[data]``. `rlcore.abilities` has protocols of other datasets."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in a fixed order."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Samples completions. One object serves many concurrent calls, which it may batch."""

    async def generate(self, prompt: Prompt, sampling: Sampling, *, session: str) -> Completion:
        """Continue ``prompt``.

        Calls of one ``session`` extend each other: the prompt of a later call starts with the prompt and the
        completion of the earlier one, so the engine may keep its cache between them. Caches shared between prompts must
        be keyed by tokens and media. Cancelling the call frees its resources.
        """
        ...

    async def release(self, session: str) -> None:
        """End the session; its cache may be freed."""
        ...

    async def load_weights(self, source: WeightSource) -> int:
        """Load the current weights of the policy; returns the policy version of later completions.

        Completions may be in flight if the engine samples during updates. They continue, and those of several versions
        have `Completion.versions`; prompts that begin later use nothing that earlier weights computed. The values of
        the source may change after the return. An engine that cannot do this raises `EngineError`.
        """
        ...

    async def close(self) -> None:
        """Free all resources."""
        ...


@runtime_checkable
class ChatEngine(Protocol):
    """Answers messages instead of tokens (``EngineSpec(speaks="messages")``): an endpoint, for evaluation alone."""

    refusal: UserError | None
    """Set when no further call can succeed (no server, a wrong key); the command ends with this error."""

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        sampling: Sampling,
        *,
        session: str,
        images: Mapping[str, bytes] = FrozenDict(),
    ) -> ChatCompletion:
        """The assistant's next message; unreadable calls have ``error`` set.

        ``images`` has the bytes of the images that the messages refer to, by content hash, as the environment gave
        them. It is omitted if there are none. The call can be cancelled. Raises `ContextFullError` when the messages
        leave no room for an answer.
        """
        ...

    async def release(self, session: str) -> None:
        """End the session."""
        ...

    async def close(self) -> None:
        """Free all resources."""
        ...


class NamedTensor(NamedTuple):
    """A whole tensor of a policy's weights."""

    name: str
    dtype: str
    """The name of its type in torch, such as ``bfloat16``."""
    shape: tuple[int, ...]
    tensor: Any
    """A ``torch.Tensor`` without gradients."""


@runtime_checkable
class WeightSource(Protocol):
    """The policy's weights, as passed to an engine."""

    @property
    def version(self) -> int:
        """The number of updates of the weights."""
        ...

    @property
    def folder(self) -> Path | None:
        """A Hugging Face folder with configuration and tokenizer, and with the weights unless `weights` has others."""
        ...

    @property
    def adapter(self) -> Mapping[str, Any] | None:
        """Peft's settings of the adapter that `weights` includes; None without one."""
        ...

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor] | None:
        """Yield all tensors of the policy one at a time; None if they are those in `folder`.

        The names are those of the model's parameters and saved buffers. Tied tensors appear once. In the process of the
        trainer, a tensor may be the live one, whose values change with the next update. With ``adapter_only``, only the
        tensors of `adapter`, under their names in peft's file.
        """
        ...


class ChatFormat(Protocol):
    """Converts messages to tokens and back. The same renderer is used for prompts, SFT, RL and evaluation."""

    stop_token_ids: tuple[int, ...]

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """The first observation with the tools block, up to and including the assistant's header."""
        ...

    def observation(self, messages: Sequence[Message], completion_ids: Sequence[int]) -> list[int]:
        """The text after a completion: the end of its turn if it is missing, the new messages, the next header."""
        ...

    def parse(self, completion_ids: Sequence[int], finish_reason: str) -> Message:
        """The assistant's message with its tool calls. A truncated completion is never parsed for calls."""
        ...

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> tuple[list[int], list[bool]]:
        """A complete demonstration as ids [T] and loss mask [T], true on tokens that the policy would sample."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, including special tokens."""
        ...


@runtime_checkable
class RendersImages(Protocol):
    """A `ChatFormat` that can place images among the tokens.

    ``images`` has the fitted bytes (`ImageProcessor.fit`) of every image that the messages refer to, by content hash.
    An image becomes its complete run of visual tokens. The spans are in the order of the messages' image parts, one for
    each; their offsets count from the first returned id.
    """

    image_processor: ImageProcessor | None
    """How the model sees images; None if it sees none, and messages must not contain any."""
    placeholder_token_ids: tuple[int, ...]
    """The tokens that mark images, which the policy must not sample. The first one represents a visual token."""

    def prompt_with_images(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], images: Mapping[str, bytes]
    ) -> tuple[Sequence[int], Sequence[MediaSpan]]:
        """As `ChatFormat.prompt`."""
        ...

    def observation_with_images(
        self, messages: Sequence[Message], completion_ids: Sequence[int], images: Mapping[str, bytes]
    ) -> tuple[Sequence[int], Sequence[MediaSpan]]:
        """As `ChatFormat.observation`."""
        ...

    def conversation_with_images(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], images: Mapping[str, bytes]
    ) -> tuple[Sequence[int], Sequence[bool], Sequence[MediaSpan]]:
        """As `ChatFormat.conversation`."""
        ...


class ToolCallParser(Protocol):
    """Parses the calls in an assistant's text."""

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text without the calls, and all calls in order; unreadable ones with ``error`` set."""
        ...

    def render(self, call: ToolCall) -> str:
        """The text of a call as the model should write it."""
        ...


class Sampler(Protocol):
    """Runs episodes and rewards: tasks to scored groups."""

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks."""
        ...

    def update_weights(self, source: WeightSource) -> int:
        """Load the current weights of the policy, and return their version. A failed engine is restarted."""
        ...

    def close(self) -> None:
        """Close the engine and workers."""
        ...


class TokenSampler(Sampler, Protocol):
    """A sampler whose policy samples tokens."""

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use."""
        ...

    def submit(self, task: Task, key: RolloutKey, *, place: int) -> Future[Group]:
        """The future scored group of a task. `update_weights` may be called before it has ended.

        It fails with `EngineError` if the engine died: then update the weights and submit again; and with the
        `UserError` of a reward that cannot go on. ``place`` is that of the task in its key.
        """
        ...

    def completions(self, prompt: Prompt, sampling: Sampling) -> Sequence[Completion]:
        """One completion directly from each of its engines, with which a trainer verifies their weights."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """Runs a model's Python code in sessions, of all episodes of a process. `rlcore.testing.check_sandbox` tests it."""

    async def open(self, images: Sequence[bytes]) -> SandboxSession:
        """Start a session in which the images are bound to ``image_clue_0``, ``image_clue_1``, … as PIL images.

        Raises `SandboxFailure` if the session cannot be started, or an image cannot be read.
        """
        ...

    async def close(self) -> None:
        """Kill all sessions and free all resources. A second call does nothing."""
        ...


@runtime_checkable
class SandboxSession(Protocol):
    """A session of Python cells, called one at a time. Names persist, unless each result has ``reset`` set."""

    async def run(self, code: str) -> CodeResult:
        """Run a cell, within the `SandboxLimits`. Whatever the code does is a result, never an exception.

        A session whose process ended is restarted with the initial images, and the result has ``reset`` set. If the
        call is cancelled, the code is killed, and its output never appears in a later result.

        Raises `SandboxFailure` if the sandbox failed, not the code.
        """
        ...

    async def close(self) -> None:
        """Kill everything that the session started, and delete its files. A second call does nothing."""
        ...


class Trainer(Protocol):
    """Trains a policy until the configured end.

    A trainer that can be resumed writes each checkpoint as ``checkpoints/NNNNNN`` of the run directory, under another
    name until it is complete, with the manifest of `rlcore.runs.checkpoint_folder.write_manifest`.
    """

    def train(self) -> Mapping[str, float]:
        """Train to the end; returns the last metrics."""
        ...


class Tracker(Protocol):
    """Shows or stores the metrics of a run."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of one step, under flat names such as ``reward/mean``."""
        ...

    def close(self) -> None:
        """Flush and close."""
        ...
