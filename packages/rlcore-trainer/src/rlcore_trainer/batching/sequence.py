"""A sequence of tokens to train on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Self

from rlcore.types import Logprobs, LossMask, MediaSpan, NumberArray, Segment, TokenIds
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingSequence:
    """A sequence to train on, of length T."""

    token_ids: TokenIds
    loss_mask: LossMask
    """True for tokens to train."""
    logprobs: Logprobs = field(default_factory=Logprobs)
    """The engine's log-probabilities, length T; may be empty."""
    prompt_length: int = 0
    """Number of tokens before the first sampled one. Sequences with equal prompts share the prompt."""
    shares_any_prefix: bool = False
    """Whether the sequence can share any common prefix, including sampled tokens, instead of only whole prompts. True
    for the segments of a trajectory with several segments."""
    media: tuple[MediaSpan, ...] = ()
    """Images in the sequence, in order of their offsets."""
    images: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """The encoded and fitted images by content hash; sequences share them. It may contain others."""
    arrays: Mapping[str, NumberArray] = field(default_factory=dict, repr=False)
    """A row for each token, if the tokens are decisions of a control policy; see `rlcore.types.Segment`."""
    advantage: float | Tensor = 0.0
    """One advantage for all trained tokens, or one for each: float64, length ``trained``."""
    weight: float = 0.0
    """Weight of each trained token in the loss; see `rlcore_trainer.algorithms.losses.aggregation`."""
    trained: int = field(init=False)
    """Number of trained tokens."""
    fed: int = field(init=False)
    """Number of tokens to feed: all tokens before the last trained one, or all decisions up to the last trained one."""

    @classmethod
    def of(
        cls,
        segment: Segment,
        *,
        advantage: float | Tensor = 0.0,
        alone: bool = True,
        images: Mapping[str, bytes] | None = None,
    ) -> Self:
        """Return the sequence of a sampled segment.

        Args:
            segment: a segment of a trajectory
            advantage: as in the attribute
            alone: whether it is the only segment of its trajectory
            images: the images of the trajectory, which are not copied
        """
        return cls(
            token_ids=segment.token_ids,
            loss_mask=segment.loss_mask,
            logprobs=segment.logprobs,
            media=segment.media,
            images=images or {},
            prompt_length=segment.prompt_length,
            shares_any_prefix=not alone and not segment.arrays,
            arrays=segment.arrays,
            advantage=advantage,
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", TokenIds(self.token_ids))
        object.__setattr__(self, "loss_mask", LossMask(self.loss_mask))
        object.__setattr__(self, "logprobs", Logprobs(self.logprobs))
        mask = self.loss_mask.tobytes()
        object.__setattr__(self, "trained", mask.count(1))
        object.__setattr__(self, "fed", max(0, mask.rfind(1) + 1 - self.lag))

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def content(self) -> Hashable:
        """What two equal sequences have in common."""
        return self.token_ids.tobytes(), self.loss_mask.tobytes(), self.media

    @property
    def lag(self) -> int:
        """How far before a token its predictor is: 1 for a token of a text, 0 for a decision, which has its own row."""
        return 0 if self.arrays else 1

    @property
    def left_state(self) -> TrainingSequence | None:
        """The state in which decisions were cut short, as a sequence of one trained token; None if there is none."""
        if not self.arrays or not len(self) or self.loss_mask[-1]:
            return None
        rows = {name: one[len(self) - 1 :] for name, one in self.arrays.items()}
        return TrainingSequence(token_ids=self.token_ids[-1:], loss_mask=LossMask([True]), arrays=rows)
