"""The protocols that plugins implement. Plain functions are taken for coroutines where it says so: rlcore adapts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlcore.errors import UserError
from rlcore.types import (
    ChatCompletion,
    Completion,
    Demonstration,
    Group,
    Message,
    Observation,
    RewardResult,
    RolloutRequest,
    Sampling,
    Step,
    Task,
    ToolCall,
    ToolSchema,
    Trajectory,
)


class Environment(Protocol):
    """One episode of one task: made for it, used once, closed whatever happens.

    Methods may be plain or ``async``; the agent loop runs plain ones of a ``blocking`` environment in threads. An
    exception ends the trajectory as ``environment_error``: it is not scored and leaves the others alone.
    """

    async def reset(self, task: Task, *, seed: int) -> Observation:
        """The first observation. Siblings of a group get the same seed and must see the same thing."""
        ...

    async def step(self, action: Message) -> Step:
        """Answer the assistant's message, whose tool calls are parsed. Returns only new messages."""
        ...

    async def close(self) -> None:
        """Free what the episode holds. Called exactly once, also after a failure or a cancellation."""
        ...


class Reward(Protocol):
    """Judges a finished trajectory. A reward of weight 0 is a metric."""

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult | float:
        """The verdict; a float stands for ``RewardResult(value=…)``. Raising means *not scored*, not zero."""
        ...


class GroupReward(Protocol):
    """Judges the trajectories of one task together (``RewardSpec(scope="group")``)."""

    async def __call__(self, group: Group) -> Sequence[RewardResult | float]:
        """One verdict per trajectory, in order."""
        ...


class Dataset(Protocol):
    """Where tasks come from. Built from the ``[data]`` table's own model.

    Only ``tasks`` is always needed: ``demonstrations`` where a run has a warm-up, ``texts`` where a tokenizer shall be
    built of something else than the demonstrations and the tasks. A dataset that can leave bad rows out also has
    ``skipped(split) -> int``, which the first lines of a run tell. One whose rows are conversations also has
    ``conversations(split) -> Sequence[Demonstration]``, all of a split in a fixed order, which supervised training
    reads instead of ``demonstrations``; a split without any is empty.
    """

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in a fixed order."""
        ...

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Conversations for a supervised warm-up. May raise `DataError` where the dataset has none."""
        ...

    def texts(self) -> Iterable[str]:
        """Text as the model will see it, for tokenizers that are built on the spot."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Samples completions. One object serves many concurrent calls and batches them as it likes."""

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, session: str) -> Completion:
        """Continue ``prompt_ids``.

        Calls of one ``session`` extend each other: the prompt of a later call starts with the prompt and the
        completion of the earlier one, so the engine may keep its cache between them. Cancelling the call frees it.
        """
        ...

    async def release(self, session: str) -> None:
        """The session is over; its cache may go."""
        ...

    async def load_weights(self, source: WeightSource) -> int:
        """Take the policy's present weights; returns the policy version that completions will carry.

        An engine that can die (a process, a server) has an attribute ``failure: str | None`` that says why it cannot
        go on, and comes back to life here. One that can give its memory back while the trainer updates has coroutines
        ``sleep()`` and ``wake()``.
        """
        ...

    async def close(self) -> None:
        """Free everything."""
        ...


@runtime_checkable
class ChatEngine(Protocol):
    """Answers messages instead of tokens (``EngineSpec(speaks="messages")``): an endpoint, for evaluation alone."""

    refusal: UserError | None
    """Set when a call showed that no other can succeed (nobody listens, a wrong key): the command ends with it."""
    max_concurrency: int | None
    """How many trajectories may be alive at a time; None for any number."""

    async def chat(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], sampling: Sampling, *, session: str
    ) -> ChatCompletion:
        """The assistant's next message; calls that cannot be read have their ``error`` set.

        Raises `ContextFullError` when the messages leave no room for an answer. Cancelling the call frees it.
        """
        ...

    async def release(self, session: str) -> None:
        """The session is over."""
        ...

    async def close(self) -> None:
        """Free everything."""
        ...


@runtime_checkable
class WeightSource(Protocol):
    """The policy's weights, as an engine may take them."""

    @property
    def version(self) -> int:
        """How many updates the weights have seen."""
        ...

    @property
    def module(self) -> object | None:
        """The live ``torch.nn.Module`` when trainer and engine share a process, else None."""
        ...

    @property
    def folder(self) -> Path | None:
        """A Hugging Face folder with configuration and tokenizer (and weights, unless ``module`` has newer ones)."""
        ...


class ChatFormat(Protocol):
    """Messages to tokens and back: the one renderer for the engine's prompt, SFT, RL and evaluation."""

    stop_token_ids: tuple[int, ...]

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """The first observation with the tools block, up to and including the assistant's header."""
        ...

    def observation(self, messages: Sequence[Message], completion_ids: Sequence[int]) -> list[int]:
        """What follows a completion: what is missing to end its turn, the new messages, the next header."""
        ...

    def parse(self, completion_ids: Sequence[int], finish_reason: str) -> Message:
        """The assistant's message with its tool calls. A truncated completion is never parsed for calls."""
        ...

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> tuple[list[int], list[bool]]:
        """A whole demonstration as ids [T] and loss mask [T]: true on what the policy would have sampled."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included."""
        ...


class ToolCallParser(Protocol):
    """Reads the calls out of an assistant's text."""

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text without the calls, and all calls in order; unreadable ones with ``error`` set."""
        ...

    def render(self, call: ToolCall) -> str:
        """The text of a call as the model should write it."""
        ...


class Executor(Protocol):
    """Runs agent loops and rewards somewhere: in this process, or spread over others."""

    @property
    def chat_format(self) -> ChatFormat:
        """The renderer that the rollouts use."""
        ...

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Scored groups in the order of the request's tasks, whatever finished first."""
        ...

    def sync_weights(self, source: WeightSource) -> None:
        """Give the engine the policy's present weights; an engine that died is started anew."""
        ...

    def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """One completion straight from the engine, as a trainer asks for to see whether its weights arrived."""
        ...

    def close(self) -> None:
        """End engine and workers."""
        ...


class Trainer(Protocol):
    """Improves a policy until its configured end."""

    def train(self) -> Mapping[str, float]:
        """Run to the end; returns the last metrics."""
        ...


class Tracker(Protocol):
    """Shows or stores a run's numbers."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of one step, under flat names such as ``reward/mean``."""
        ...

    def close(self) -> None:
        """Flush and end."""
        ...
