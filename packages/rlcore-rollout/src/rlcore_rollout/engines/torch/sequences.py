"""A call on its way, and what is kept of a conversation between two calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlcore.errors import EngineError
from rlcore.types import Completion, Sampling

from rlcore_rollout.engines.torch.cache import Stretch
from rlcore_rollout.engines.torch.prompts import Prompt
from rlcore_rollout.engines.torch.stop_texts import StopTexts


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One call of ``generate`` on its way."""

    prompt: tuple[int, ...]
    sampling: Sampling
    session: str
    limit: int
    """New tokens at most, the context's end included."""
    finish: Callable[[Completion | EngineError], None]
    """Takes the result; called once."""
    cancelled: bool = False
    row: int = -1
    """Where its own keys and values lie."""
    shared: Prompt | None = None
    """The prompt that comes before them; None until that is computed."""
    seat: int | None = None
    """The row of that prompt."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    stops: frozenset[int] = frozenset()
    stop_texts: StopTexts | None = None

    @property
    def place(self) -> int:
        """Where in its row the newest token stands; everything before is computed."""
        return len(self.prompt) + len(self.tokens) - 1 - self.shared_length

    @property
    def shared_length(self) -> int:
        """Positions before its row's first."""
        return 0 if self.shared is None else len(self.shared.tokens)


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """What is kept of a conversation between two calls."""

    tokens: list[int]
    """Those whose keys and values are computed."""
    shared: Prompt
    """The first of them."""
    row: int | None
    """The row that still holds the others, or None when they are ``parked``."""
    parked: Stretch | None = None

    @property
    def place(self) -> int:
        """Where in its row the next token would stand."""
        return len(self.tokens) - len(self.shared.tokens)


def common_prefix(computed: list[int], prompt: tuple[int, ...]) -> int:
    """How many tokens of the prompt are already computed; at least one is left, for its logits."""
    length = min(len(computed), len(prompt) - 1)
    if tuple(computed[:length]) == prompt[:length]:
        return length
    return next(index for index in range(length) if computed[index] != prompt[index])
