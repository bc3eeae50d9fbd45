"""The protocols that plugins implement. Plain functions are taken for coroutines where it says so: rlcore adapts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from rlcore.types import (
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

    A dataset that can leave bad rows out also has ``skipped(split) -> int``, which the first lines of a run tell.
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
        """Take the policy's present weights; returns the policy version that completions will carry."""
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
        """Give the engine the policy's present weights."""
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
