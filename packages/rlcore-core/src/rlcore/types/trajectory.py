"""The token-level record of an episode.

``T`` is the number of tokens of a segment; every per-token array of a segment has length T.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rlcore.types.arrays import Logprobs, LossMask, NumberArray, TokenIds
from rlcore.types.frozen import FrozenDict, freeze
from rlcore.types.generation import SPARSE, FinishReason, MediaSpan, Sampling, VersionSpan
from rlcore.types.messages import Message, ToolSchema
from rlcore.types.steps import Failure, Stop
from rlcore.types.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A span of a segment's tokens: output of the model (``policy``) or its input (``observation``)."""

    kind: Literal["observation", "policy"]
    start: int
    end: int
    messages: tuple[Message, ...]
    reward: float | None = None
    """The environment's reward for this turn; None if there is none. Only a policy turn has one."""
    finish_reason: FinishReason | None = None
    policy_version: int = 0
    """The version of the weights that sampled the first token."""
    versions: tuple[VersionSpan, ...] = field(default=(), metadata=SPARSE)
    """As `Completion.versions`."""

    @property
    def spans(self) -> tuple[VersionSpan, ...]:
        """The versions of all tokens in their order; at least one, also if the weights did not change."""
        return self.versions or (VersionSpan(self.policy_version, self.end - self.start),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An append-only sequence of tokens: prompt, completions and observations as the model saw them.

    A segment with ``arrays`` is a sequence of decisions of a policy that controls an environment. Each decision is a
    token with the id 0. An episode that was cut short has one more token, which was not sampled: its row of the arrays
    is what the policy would have seen next.
    """

    token_ids: TokenIds = field(default_factory=TokenIds)
    loss_mask: LossMask = field(default_factory=LossMask)
    """True for each token that the policy sampled."""
    logprobs: Logprobs = field(default_factory=Logprobs)
    """The engine's log-probability of each sampled token in nats, 0.0 elsewhere."""
    turns: tuple[Turn, ...] = ()
    context: tuple[Message, ...] = ()
    """The messages that a rewritten context repeats at the beginning of this segment. Their tokens belong to the first
    turn, whose messages are only the new ones. Empty in a trajectory's first segment."""
    media: tuple[MediaSpan, ...] = ()
    """Images among the tokens, in order of their offsets."""
    arrays: Mapping[str, NumberArray] = field(default_factory=FrozenDict)
    """What a policy saw and chose, with one row for each token: ``observation/NAME`` and ``action/NAME``. The policy
    computes the log-probability of a decision again from its row."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", freeze(self.arrays))
        object.__setattr__(self, "token_ids", TokenIds.of(self.token_ids))
        object.__setattr__(self, "loss_mask", LossMask.of(self.loss_mask))
        object.__setattr__(self, "logprobs", Logprobs.of(self.logprobs))
        if not len(self.token_ids) == len(self.loss_mask) == len(self.logprobs):
            lengths = f"{len(self.token_ids)}, {len(self.loss_mask)} and {len(self.logprobs)}"
            raise ValueError(f"token_ids, loss_mask and logprobs must have the same length, not {lengths}")
        for name, one in self.arrays.items():
            if not one.shape or len(one) != len(self.token_ids):
                raise ValueError(f"{name!r} must have {len(self.token_ids)} rows, one for each token, not {one.shape}")

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def prompt_length(self) -> int:
        """Number of tokens before the first sampled one, which the siblings of a group share."""
        return self.turns[0].end if self.turns and self.turns[0].kind == "observation" else 0

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return self.loss_mask.tobytes().count(1)


LONGEST_TEXT = 2000
"""Limit of the text of a `RewardResult`, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """The result of one reward. ``value=None`` with an ``error`` means *not scored*, which differs from zero."""

    value: float | None
    """A value in [0, 1] unless the reward's spec says otherwise."""
    components: Mapping[str, float] = field(default_factory=FrozenDict)
    """Components to log."""
    error: str | None = None
    error_kind: str = ""
    """A short name for errors of this kind, such as ``time-out``, by which metrics count them."""
    text: str = ""
    """What a judge said, for people who read the trajectory; cut after `LONGEST_TEXT` characters."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", freeze(self.components))


class Timing(NamedTuple):
    """How long a part of an episode took."""

    kind: str
    """``queue``, ``engine_queue``, ``turn``, ``reset``, ``step``, ``tool``, ``cell``, ``request``, ``reward``."""
    name: str
    """Of the tool, the reward or the model that was asked; empty for others."""
    start: float
    """Unix time in seconds."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The record of one episode. Messages are a view of it, and text is never tokenised again."""

    task_id: str
    sibling: int
    """Index among the trajectories of its group."""
    role: str = ""
    """The role of the policy, such as ``player-1``, in an episode in which it has several. Each role has its own
    trajectory. Empty in other episodes."""
    segments: tuple[Segment, ...] = ()
    """Usually one segment; several if the environment rewrote the context."""
    stop: Stop = Stop.DONE
    failure: Failure | None = None
    """The error; None for a trajectory that can be scored."""
    tools: tuple[ToolSchema, ...] = ()
    images: Mapping[str, bytes] = field(default_factory=FrozenDict)
    """Encoded images by content hash, each stored once."""
    rewards: Mapping[str, RewardResult] = field(default_factory=FrozenDict)
    """The result of each reward by id."""
    reward: float | None = None
    """The weighted sum; None if not scored."""
    metrics: Mapping[str, float] = field(default_factory=FrozenDict)
    sampling: Sampling | None = None
    """The sampling parameters of each generation; None if they are not known."""
    times: tuple[Timing, ...] = field(default=(), compare=False, repr=False, metadata={"stored": False})
    """How long its parts took. Not stored with it, so that equal runs have equal records."""

    def __post_init__(self) -> None:
        for name in ("images", "rewards", "metrics"):
            object.__setattr__(self, name, freeze(getattr(self, name)))

    @property
    def scorable(self) -> bool:
        """Whether rewards may score the trajectory: the episode ended without a failure and was not cancelled."""
        return self.failure is None and self.stop is not Stop.CANCELLED

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of all segments. Their spans are relative to the start of their own segment."""
        return tuple(turn for segment in self.segments for turn in segment.turns)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation. Messages that a rewritten context repeats appear only once."""
        return tuple(message for turn in self.turns for message in turn.messages)

    @property
    def final_response(self) -> str:
        """The text of the last assistant message, or an empty string. Never a tool's output."""
        return next((m.text for m in reversed(self.messages) if m.role == "assistant"), "")

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the policy sampled, in all segments."""
        return sum(segment.sampled_tokens for segment in self.segments)

    @property
    def turn_reward(self) -> float | None:
        """The sum of the environment's rewards for the turns; None if there are none."""
        rewards = [turn.reward for turn in self.turns if turn.reward is not None]
        return sum(rewards) if rewards else None

    def replace(self, **changes: Any) -> Trajectory:
        """Return a copy with the named fields replaced."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The trajectories of one task, the unit of filtering: G, or one for each role of G episodes.

    Advantages compare trajectories of the same `roles`.
    """

    task: Task
    trajectories: tuple[Trajectory, ...]

    @property
    def rewards_G(self) -> tuple[float | None, ...]:
        """One value per trajectory; None if not scored."""
        return tuple(trajectory.reward for trajectory in self.trajectories)

    @property
    def oldest_version(self) -> int | None:
        """The version of the weights that sampled the oldest token; None if no token was sampled."""
        turns = (turn for trajectory in self.trajectories for turn in trajectory.turns if turn.kind == "policy")
        return min((turn.policy_version for turn in turns), default=None)

    @property
    def roles(self) -> Mapping[str, Group]:
        """The trajectories of each role, as a group. Most groups have only the role ``""``."""
        found: dict[str, list[Trajectory]] = {}
        for trajectory in self.trajectories:
            found.setdefault(trajectory.role, []).append(trajectory)
        return {role: dataclasses.replace(self, trajectories=tuple(of)) for role, of in found.items()}
