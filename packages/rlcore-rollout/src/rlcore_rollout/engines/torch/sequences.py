"""Calls in progress, the texts that stop them, and the state kept between two calls of a session."""

from __future__ import annotations

import math
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rlcore.errors import EngineError
from rlcore.types import Completion, FinishReason, Logprobs, MediaSpan, Prompt, Sampling, TokenIds, VersionSpan
from tokenizers import Tokenizer

from rlcore_rollout.engines.context import CHECK_SESSION
from rlcore_rollout.engines.torch.cache import Stretch
from rlcore_rollout.engines.torch.prompts import SharedPrompt
from rlcore_rollout.engines.torch.sampling import uniforms

PromptKey = tuple[bytes, tuple[MediaSpan, ...]]


class StopTexts:
    """Checks whether the newest token completes one of the texts.

    Only the last tokens are decoded. Each token is at least one byte, so the text is never longer than the decoded
    tail.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Iterable[str]) -> None:
        self._tokenizer, self._texts = tokenizer, tuple(texts)
        self._tail = (
            max(len(text.encode()) for text in self._texts) + 4
        )  # plus a character cut at the start of the tail

    def __call__(self, tokens: list[int]) -> bool:
        """Check the tokens of a generation, with the newest token last."""
        tail = self._tokenizer.decode(tokens[-self._tail :], skip_special_tokens=False)
        return any(text in tail for text in self._texts)


def load_tokenizer(folder: Path | None) -> Tokenizer:
    """Load the tokenizer of the model's folder.

    Raises:
        EngineError: there is no tokenizer.
    """
    path = None if folder is None else folder / "tokenizer.json"
    if path is None or not path.is_file():
        raise EngineError(
            f"stop texts need the model's tokenizer: {f'{path} does not exist' if path else 'there is no model folder'}"
        )
    return Tokenizer.from_file(str(path))


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """One ``generate`` call in progress."""

    prompt: Prompt
    sampling: Sampling
    session: str
    limit: int
    """Maximum number of new tokens, also limited by the end of the context."""
    finish: Callable[[Completion | EngineError], None]
    """Callback that receives the result; called once."""
    cancelled: bool = False
    admitted: float | None = None
    """When its wait for a slot ended, on the clock of ``time.perf_counter``."""
    row: int = -1
    """The row that holds the sequence's own keys and values."""
    shared: SharedPrompt | None = None
    """The prompt that precedes them; None until it is computed."""
    seat: int | None = None
    """The row of that prompt."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    version: int = 0
    """The version of the weights that draw its next token."""
    spans: list[VersionSpan] = field(default_factory=list)
    """The tokens that earlier weights have drawn."""
    stops: frozenset[int] = frozenset()
    stop_texts: StopTexts | None = None
    shift: int = 0
    """Rotary position of a token after the images of the prompt, minus its index."""

    def __post_init__(self) -> None:
        self.shift = sum(max(span.rows, span.columns) - span.length for span in self.prompt.media if span.rows)

    def begin(self, version: int) -> None:
        """Prepare the draws with weights of this version: their random numbers and the stop tokens."""
        self.version = version
        self.numbers = uniforms(self.sampling.seed, len(self.prompt), self.limit)
        self.stops = frozenset(self.sampling.stop_token_ids)

    def append(self, token: int, logprob: float) -> FinishReason | None:
        """Append a drawn token. Returns the finish reason if it is the last one.

        Raises:
            EngineError: the log-probability is not finite.
        """
        if not math.isfinite(logprob):
            raise EngineError("the model's logits are not finite: its weights have diverged or are damaged")
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.stops or (self.stop_texts is not None and self.stop_texts(self.tokens)):
            return "stop"
        return "length" if len(self.tokens) >= self.limit else None

    def change(self, version: int) -> None:
        """Draw the next tokens with weights of another version."""
        drawn = len(self.tokens) - sum(span.tokens for span in self.spans)
        if drawn and version != self.version:
            self.spans.append(VersionSpan(self.version, drawn))
        self.version = version

    def complete(self, reason: FinishReason) -> None:
        """Answer the call with the drawn tokens."""
        last = VersionSpan(self.version, len(self.tokens) - sum(span.tokens for span in self.spans))
        versions = (*self.spans, last)
        self.finish(
            Completion(
                token_ids=TokenIds(self.tokens),
                logprobs=Logprobs(self.logprobs),
                finish_reason=reason,
                policy_version=versions[0].version,
                versions=versions if self.spans else (),
            )
        )

    def queue(self, waiting: deque[Sequence]) -> None:
        """Join the calls that wait."""
        (waiting.appendleft if self.session == CHECK_SESSION else waiting.append)(self)

    @property
    def place(self) -> int:
        """Position of the newest token in its row. Everything before it is computed."""
        return len(self.prompt) + len(self.tokens) - 1 - self.shared_length

    @property
    def position(self) -> int:
        """Rotary position of the newest token."""
        return len(self.prompt) + len(self.tokens) - 1 + self.shift

    @property
    def shared_length(self) -> int:
        """Number of positions before the first position of its row."""
        return 0 if self.shared is None else len(self.shared.tokens)


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """The state kept between two calls of a session."""

    tokens: TokenIds
    """The tokens whose keys and values are computed."""
    media: tuple[MediaSpan, ...]
    """The images among these tokens."""
    shared: SharedPrompt
    """The prompt at the beginning of these tokens."""
    row: int | None
    """The row that still holds the other tokens, or None when they are ``parked``."""
    parked: Stretch | None = None

    @property
    def place(self) -> int:
        """Position of the next token in its row."""
        return len(self.tokens) - len(self.shared.tokens)


def common_prefix(known: Session | SharedPrompt, prompt: Prompt) -> int:
    """Return how many positions of the prompt are already computed. At least one is left, for its logits.

    Equal tokens with different images count as different: positions are reused up to the first image that differs.
    """
    computed, tokens = known.tokens, prompt.token_ids
    length = most = min(len(computed), len(tokens) - 1)
    if computed[:most] != tokens[:most]:
        # Comparing slices is much faster than comparing tokens, and a new prompt is compared with all known ones.
        length = bisect(range(1, most), False, key=lambda count: computed[:count] != tokens[:count])
    different = set(known.media).symmetric_difference(prompt.media)
    return min([length, *(span.offset for span in different)])


def key_of(prompt: Prompt) -> PromptKey:
    """Return the key of prompts that can share one computation: their tokens and their images."""
    return prompt.token_ids.tobytes(), prompt.media
