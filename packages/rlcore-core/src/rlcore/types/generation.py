"""Requests to an engine and its responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rlcore.types.arrays import Logprobs, TokenIds
from rlcore.types.frozen import FrozenDict, freeze
from rlcore.types.messages import Message

FinishReason = Literal["stop", "length"]
SPARSE = {"sparse": True}
"""Metadata of a field that `rlcore.types.to_json` leaves out if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSpan:
    """The tokens of one image in a sequence."""

    sha256: str
    """Content hash of the encoded image."""
    offset: int
    """Position of its first token."""
    length: int
    """Number of its tokens."""
    rows: int = 0
    """Rows of visual tokens; 0 if the tokens are not arranged in a grid."""
    columns: int = 0
    """Columns of visual tokens: ``rows * columns == length``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The tokens to continue, with their images.

    Prompts are equal when both their tokens and their media are equal. Equal placeholder tokens may be different
    images.
    """

    token_ids: TokenIds
    media: tuple[MediaSpan, ...] = ()
    """Image spans in order of their offsets, without overlap."""
    images: Mapping[str, bytes] = field(default_factory=FrozenDict, compare=False, repr=False)
    """Encoded images by content hash."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", TokenIds.of(self.token_ids))
        object.__setattr__(self, "images", freeze(self.images))

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The sampling parameters of one completion. Temperature 0 is greedy."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps the whole vocabulary."""
    stop_token_ids: tuple[int, ...] = ()
    """Generation ends at the first of these tokens, which is kept as the last token."""
    stop: tuple[str, ...] = ()
    """Generation ends at the token that completes the first of these texts. The text is kept."""
    suppressed_token_ids: tuple[int, ...] = ()
    """Tokens that are never sampled, such as the placeholders of images. Log-probabilities include them."""
    seed: int = 0
    """64 bits. The token at absolute position t is sampled with a number keyed only by (seed, t)."""


class VersionSpan(NamedTuple):
    """Tokens in succession that weights of the same version sampled."""

    version: int
    tokens: int
    """Number of the tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A sampled completion: token ids, and the log-probability of each token at temperature 1."""

    token_ids: TokenIds
    logprobs: Logprobs
    """Nats, under the policy at temperature 1 and without top-p or top-k."""
    finish_reason: FinishReason
    policy_version: int = 0
    """The version of the weights that sampled the first token."""
    versions: tuple[VersionSpan, ...] = field(default=(), metadata=SPARSE)
    """The versions of all tokens in their order, if the weights changed during the completion; else empty."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", TokenIds.of(self.token_ids))
        object.__setattr__(self, "logprobs", Logprobs.of(self.logprobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletion:
    """The answer of a `rlcore.contracts.ChatEngine`: a message, and the token counts that the server reports."""

    message: Message
    finish_reason: FinishReason
    prompt_tokens: int | None = None
    """Tokens of the whole prompt; None if the server does not report them."""
    completion_tokens: int | None = None
    """Tokens of the answer, including reasoning; None if the server does not report them."""


class Response(NamedTuple):
    """A turn of the policy in the conversation of a `rlcore.harnesses.Harness`."""

    turn: int
    """Number of the turn, which `EpisodePolicy.reward` and `EpisodePolicy.withdraw` take."""
    completion: ChatCompletion
    """The message, whose tool calls have ids."""
