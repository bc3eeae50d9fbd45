"""The values that travel between environments, tools, rewards, engines and trainers.

All are frozen. ``T`` is the number of tokens of a trajectory; every per-token tuple of a trajectory has length T.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
JsonSchema = Mapping[str, Any]


def freeze(value: Any) -> Any:
    """A deeply immutable copy of plain data: mappings become read-only views, lists become tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """The inverse of `freeze`: plain dicts and lists, for JSON."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A stretch of text in a message."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePart:
    """A picture in a message, by content hash; the bytes stand once in the trajectory's ``images``."""

    sha256: str


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model wrote.

    A call that could not be read has ``arguments=None`` and says why in ``error``; whoever answers it tells the model.
    """

    name: str
    arguments: Mapping[str, Any] | None = None
    error: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat, in the chat-completions convention."""

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None
    """The tool that answered, in a ``tool`` message."""
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text of all text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """What the model is told about a tool: OpenAI's function form."""

    name: str
    description: str
    parameters: JsonSchema
    """A JSON schema of type ``object``."""

    def as_json(self) -> dict[str, Any]:
        """``{"type": "function", "function": {…}}``."""
        function = {"name": self.name, "description": self.description, "parameters": thaw(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row to act on. Immutable; all of it reaches the environment, the tools and the reward."""

    id: str
    messages: tuple[Message, ...]
    fields: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Every other field of the row, the expected ``answer`` among them."""
    images: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", freeze(self.fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A whole conversation to imitate: its assistant messages are trained on, nothing else."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the environment shows: only the new messages. The first observation also names the tools."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()


class EndReason(StrEnum):
    """Why a trajectory ended. The ones in `NOT_SCORED` carry no reward."""

    DONE = "done"
    """The environment terminated."""
    MAX_TURNS = "max_turns"
    """The environment truncated after its last allowed turn."""
    LENGTH = "length"
    """A generation, or the whole context, reached its token limit."""
    TOOL_ERROR = "tool_error"
    """Too many unusable tool calls in a row."""
    TIMEOUT = "timeout"
    """A deadline passed in a tool, an environment or the whole trajectory."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment raised."""
    ENGINE_ERROR = "engine_error"
    """The engine gave no completion."""
    REWARD_ERROR = "reward_error"
    """A reward raised, timed out or gave no finite value."""
    CANCELLED = "cancelled"
    """The run was interrupted."""


NOT_SCORED = frozenset(
    {
        EndReason.TIMEOUT,
        EndReason.ENVIRONMENT_ERROR,
        EndReason.ENGINE_ERROR,
        EndReason.REWARD_ERROR,
        EndReason.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What an environment answers to an action."""

    observation: Observation = Observation(messages=())
    reward: float | None = None
    """The reward of this step; None when this step is not scored (rewards usually judge the whole trajectory)."""
    terminated: bool = False
    truncated: bool = False
    end_reason: EndReason | None = None
    """Set when the episode ends for another reason than ``done`` (terminated) or ``max_turns`` (truncated)."""
    info: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Numbers here become metrics of the trajectory."""


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one completion is drawn. Temperature 0 is greedy."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    stop_token_ids: tuple[int, ...] = ()
    """Generation ends with the first of these, which is kept as the last token."""
    stop: tuple[str, ...] = ()
    """Generation ends with the token that completes the first of these texts, which is kept."""
    seed: int = 0
    """64 bits. The token at absolute position t is drawn with a number keyed by (seed, t) and by nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What an engine sampled: the ids, and the log-probability of each under the distribution of temperature 1."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms (nats) under the policy at temperature 1 and without top-p or top-k."""
    finish_reason: FinishReason
    policy_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletion:
    """What a `rlcore.contracts.ChatEngine` answered: a message, and how many tokens it says that took."""

    message: Message
    finish_reason: FinishReason
    prompt_tokens: int | None = None
    """Tokens of everything that the model was shown; None where the engine does not tell."""
    completion_tokens: int | None = None
    """Tokens that it wrote, thoughts included; None where the engine does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A span of a trajectory's tokens: what the model wrote (``policy``) or what it was shown (``observation``)."""

    kind: Literal["observation", "policy"]
    start: int
    end: int
    messages: tuple[Message, ...]
    reward: float | None = None
    finish_reason: FinishReason | None = None
    policy_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """One reward's verdict. ``value=None`` with an ``error`` means *not scored*, which is not zero."""

    value: float | None
    """In [0, 1] unless the reward's spec says otherwise."""
    components: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Parts worth logging."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """What happened, as tokens. Messages are a view on it; nothing is ever tokenised a second time."""

    task_id: str
    sibling: int
    """Which of its group's G trajectories this is."""
    token_ids: tuple[int, ...]
    """Prompt, completions and observations in the order in which the model saw them, length T."""
    loss_mask: tuple[bool, ...]
    """True where the policy sampled the token, length T."""
    logprobs: tuple[float, ...]
    """The engine's log-probability of each sampled token, 0.0 elsewhere, length T."""
    turns: tuple[Turn, ...]
    end_reason: EndReason
    error: str | None = None
    tools: tuple[ToolSchema, ...] = ()
    images: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """Pictures by content hash."""
    rewards: Mapping[str, RewardResult] = field(default_factory=lambda: MappingProxyType({}))
    """The verdict of each reward by id."""
    reward: float | None = None
    """The weighted sum; None when not scored."""
    metrics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation."""
        return tuple(message for turn in self.turns for message in turn.messages)

    @property
    def final_response(self) -> str:
        """The text of the last assistant message, the empty text when there is none. Never a tool's output."""
        return next((m.text for m in reversed(self.messages) if m.role == "assistant"), "")

    @property
    def prompt_length(self) -> int:
        """How many tokens stand before the first sampled one: what the siblings of a group share."""
        return self.turns[0].end if self.turns and self.turns[0].kind == "observation" else 0

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the policy wrote."""
        return sum(self.loss_mask)

    def replace(self, **changes: Any) -> Trajectory:
        """A copy with other values in the named fields."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The G trajectories of one task: the unit of filtering and of advantages."""

    task: Task
    trajectories: tuple[Trajectory, ...]

    @property
    def rewards_G(self) -> tuple[float | None, ...]:
        """One value per trajectory, None where not scored."""
        return tuple(trajectory.reward for trajectory in self.trajectories)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """What a trainer or an evaluation asks of an executor: every task, ``group_size`` times."""

    tasks: Sequence[Task]
    group_size: int
    seed: int
    """Randomness is keyed by (seed, step, task id, sibling, position)."""
    step: int
    purpose: Literal["train", "evaluation", "baseline"] = "train"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Sampling` that differ from the run's, such as ``{"temperature": 0.0}``."""


def derive_seed(*key: object) -> int:
    """A 63-bit seed from a key, equal on every machine and in every process."""
    text = "\x1f".join(str(part) for part in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
