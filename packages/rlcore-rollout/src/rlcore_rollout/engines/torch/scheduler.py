"""Which sequence is computed when: rows, sessions and shared prompts. Used from one thread; knows no event loop.

A call becomes a `Sequence`. It waits, in the order of arrival, for a row of the cache; its prompt is computed (or taken
from the session's earlier call, or from a sibling with the same prompt); then every step draws one token for each
active row. What a session has computed stays in its row until the row is needed and then beside it.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from rlcore.errors import EngineError
from rlcore.types import Completion, Sampling
from torch import Tensor

from rlcore_rollout.engines.torch.cache import RowCache, Stretch
from rlcore_rollout.engines.torch.decoder import Decoder
from rlcore_rollout.engines.torch.sampling import draw, uniforms
from rlcore_rollout.engines.torch.weights import Weights

ROW_PAD = 8
"""Rows of a step are a multiple of this: fewer rows take other code paths in the libraries below."""
TOKEN_PAD = 16
"""New tokens of a prompt are padded to a multiple of this and computed together with others of that length."""
CHUNK = 256
"""A longer prompt is computed in pieces of this many tokens."""
BATCH_TOKENS = 2048
"""Prompt tokens that are computed together at most."""
PATIENCE = 8
"""Steps that a waiting call may be kept for others to share its prompt computation."""


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
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    stops: frozenset[int] = frozenset()


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """What is kept of a conversation between two calls."""

    tokens: list[int]
    """Those whose keys and values are computed."""
    row: int | None
    """The row that still holds them, or None when they are ``parked``."""
    parked: Stretch | None = None


class Scheduler:
    """Rows and what is in them. Every method may raise; then `reset` must follow."""

    def __init__(self, weights: Weights, slots: int, *, keep_all: bool):
        self.rows = -(-slots // ROW_PAD) * ROW_PAD
        self.slots = slots
        self.keep_all = keep_all
        self.version = 0
        self.waiting: deque[Sequence] = deque()
        self.active: dict[int, Sequence] = {}
        self.load(weights)

    def load(self, weights: Weights) -> None:
        """Take new weights; everything computed with the old ones goes."""
        self._decoder = Decoder(weights)
        self._device = weights.device
        self._cache = RowCache(weights, self.rows)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._owners: dict[int, str] = {}
        self._prompts: OrderedDict[tuple[int, ...], tuple[Stretch, Tensor]] = OrderedDict()
        self._since_admission = PATIENCE

    def reset(self) -> None:
        """Forget all sequences and everything computed."""
        self.waiting.clear()
        self.active.clear()
        self.load(self._decoder.weights)

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self.waiting or self.active)

    def submit(self, sequence: Sequence) -> None:
        """Queue a call."""
        self.waiting.append(sequence)

    def release(self, session: str) -> None:
        """Forget a session; no call of it may be active."""
        kept = self._sessions.pop(session, None)
        if kept is not None and kept.row is not None:
            del self._owners[kept.row]

    def step(self) -> None:
        """Admit what waits, then draw one token for every active sequence."""
        self._drop_cancelled()
        free = self.slots - len(self.active)
        if self.waiting and free:
            enough = min(len(self.waiting), free) >= max(1, self.slots // 4)
            if enough or not self.active or self._since_admission >= PATIENCE:
                self._admit([self.waiting.popleft() for _ in range(min(free, len(self.waiting)))])
                self._since_admission = 0
        self._since_admission += 1
        if self.active:
            self._decode()

    def _drop_cancelled(self) -> None:
        for row, sequence in list(self.active.items()):
            if sequence.cancelled:
                del self.active[row]
        if any(sequence.cancelled for sequence in self.waiting):
            self.waiting = deque(sequence for sequence in self.waiting if not sequence.cancelled)

    # Admission: from a prompt to the first token

    def _admit(self, sequences: list[Sequence]) -> None:
        """Give each sequence a row, compute its prompt and draw its first token."""
        sequences = self._refuse_twins(sequences)
        kept = {sequence: self._sessions.pop(sequence.session, None) for sequence in sequences}
        for sequence, session in kept.items():  # those first whose keys and values are still in a row
            if session is not None and session.row is not None:
                self._occupy(session.row, sequence)
        fresh: dict[tuple[int, ...], list[Sequence]] = {}
        pieces: list[tuple[Sequence, int]] = []
        for sequence, session in kept.items():
            if sequence.row < 0:
                self._occupy(self._free_row(), sequence)
            if session is None:
                fresh.setdefault(sequence.prompt, []).append(sequence)
                continue
            if session.parked is not None:
                self._cache.put(sequence.row, session.parked)
            pieces.append((sequence, _common_prefix(session.tokens, sequence.prompt)))
        leaders = {siblings.pop(0) for prompt, siblings in fresh.items() if prompt not in self._prompts}
        ready = self._compute([*pieces, *((leader, 0) for leader in kept if leader in leaders)])
        for sequence, logits_V in ready:
            if sequence in leaders:
                self._prompts[sequence.prompt] = (self._cache.take(sequence.row, len(sequence.prompt)), logits_V)
        for prompt, siblings in fresh.items():
            self._prompts.move_to_end(prompt)
            stretch, logits_V = self._prompts[prompt]
            for sequence in siblings:
                self._cache.put(sequence.row, stretch)
                ready.append((sequence, logits_V))
        while len(self._prompts) > self.slots:
            self._prompts.popitem(last=False)
        if ready:
            self._first_tokens(ready)

    def _refuse_twins(self, sequences: list[Sequence]) -> list[Sequence]:
        """The sequences without those whose session is already generating."""
        generating = {sequence.session for sequence in self.active.values()}
        accepted = []
        for sequence in sequences:
            if sequence.session in generating:
                sequence.finish(EngineError(f"session {sequence.session!r} is already generating"))
            else:
                generating.add(sequence.session)
                accepted.append(sequence)
        return accepted

    def _first_tokens(self, ready: list[tuple[Sequence, Tensor]]) -> None:
        padding = -len(ready) % ROW_PAD
        logits_BV = torch.stack([logits_V for _, logits_V in ready] + [ready[0][1]] * padding)
        for sequence, _ in ready:
            sequence.numbers = uniforms(sequence.sampling.seed, len(sequence.prompt), sequence.limit)
            sequence.stops = frozenset(sequence.sampling.stop_token_ids)
        samplings = [sequence.sampling for sequence, _ in ready] + [None] * padding
        numbers = [sequence.numbers[0] for sequence, _ in ready] + [0.0] * padding
        for (sequence, _), token, logprob in zip(ready, *draw(logits_BV, samplings, numbers), strict=False):
            self._append(sequence, token, logprob)

    def _compute(self, pieces: list[tuple[Sequence, int]]) -> list[tuple[Sequence, Tensor]]:
        """Each sequence with the logits after its prompt, whose first ``start`` positions are already in its row.

        The shapes in which a sequence is computed depend on itself alone.
        """
        done: list[tuple[Sequence, Tensor]] = []
        while pieces:
            by_width: dict[int, list[tuple[Sequence, int]]] = {}
            for sequence, start in pieces:
                new = min(len(sequence.prompt) - start, CHUNK)
                by_width.setdefault(-(-new // TOKEN_PAD) * TOKEN_PAD, []).append((sequence, start))
            pieces = []
            for width, members in sorted(by_width.items()):
                size = max(1, BATCH_TOKENS // width)
                for first in range(0, len(members), size):
                    batch = members[first : first + size]
                    for (sequence, start), logits_V in zip(batch, self._extend(batch, width), strict=False):
                        end = start + CHUNK
                        if end < len(sequence.prompt):
                            pieces.append((sequence, end))
                        else:
                            done.append((sequence, logits_V))
        return done

    def _extend(self, batch: list[tuple[Sequence, int]], width: int) -> Tensor:
        news = [sequence.prompt[start : start + min(width, CHUNK)] for sequence, start in batch]
        longest = max(start + width for _, start in batch) - 1
        self._cache.reserve(longest + 1)
        return self._decoder.extend(
            self._integers([[*new, *[0] * (width - len(new))] for new in news]),
            self._integers([start for _, start in batch]),
            self._integers([sequence.row for sequence, _ in batch]),
            self._integers([len(new) - 1 for new in news]),
            longest,
            self._cache,
        )

    def _integers(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)

    # Rows and sessions

    def _occupy(self, row: int, sequence: Sequence) -> None:
        self._owners.pop(row, None)
        sequence.row = row
        self.active[row] = sequence

    def _free_row(self) -> int:
        """The first row that is empty, or the one whose session rests longest; that session is parked."""
        for row in range(self.slots):
            if row not in self.active and row not in self._owners:
                return row
        for session in self._sessions.values():
            if session.row is not None:
                return self._park(session)
        raise EngineError("no row of the cache is free")

    def _park(self, session: Session) -> int:
        assert session.row is not None
        row = session.row
        session.parked = self._cache.take(row, len(session.tokens))
        session.row = None
        del self._owners[row]
        self._forget_oldest()
        return row

    def _forget_oldest(self) -> None:
        """Outside the deterministic mode parked sessions take at most as much memory as four caches."""
        if self.keep_all:
            return
        budget = 4 * self.rows * self._cache.capacity
        parked = [name for name, session in self._sessions.items() if session.parked is not None]
        total = sum(len(self._sessions[name].tokens) for name in parked)
        for name in parked:
            if total <= budget:
                return
            total -= len(self._sessions.pop(name).tokens)

    def _gather(self) -> int:
        """Move active sequences together at the low rows when that makes steps smaller; returns the rows of a step."""
        last = max(self.active)
        needed = -(-len(self.active) // ROW_PAD) * ROW_PAD
        if last < needed + ROW_PAD:
            return -(-(last + 1) // ROW_PAD) * ROW_PAD
        for row in sorted(row for row in self.active if row >= needed):
            target = next(row for row in range(needed) if row not in self.active)
            if target in self._owners:
                self._park(self._sessions[self._owners[target]])
            sequence = self.active.pop(row)
            self._cache.move(row, target, len(sequence.prompt) + len(sequence.tokens) - 1)
            self._occupy(target, sequence)
        return needed

    # Decoding

    def _decode(self) -> None:
        """One token for every active sequence."""
        count = self._gather()
        tokens, positions, numbers = [0] * count, [0] * count, [0.0] * count
        samplings: list[Sampling | None] = [None] * count
        longest = 0
        for row, name in self._owners.items():
            if row < count:  # a resting session's row is computed too: let it write where nothing is kept
                positions[row] = len(self._sessions[name].tokens)
        for row, sequence in self.active.items():
            made = len(sequence.tokens)
            position = len(sequence.prompt) + made - 1
            tokens[row], positions[row], numbers[row] = sequence.tokens[-1], position, sequence.numbers[made]
            samplings[row] = sequence.sampling
            longest = max(longest, position)
        self._cache.reserve(max(positions) + 1)
        logits_BV = self._decoder.decode(self._integers(tokens), self._integers(positions), longest, self._cache)
        drawn, logprobs = draw(logits_BV, samplings, numbers)
        for row, sequence in list(self.active.items()):
            self._append(sequence, drawn[row], logprobs[row])

    def _append(self, sequence: Sequence, token: int, logprob: float) -> None:
        if not math.isfinite(logprob):
            self.active.pop(sequence.row)
            sequence.finish(EngineError("the model's logits are not finite: its weights have diverged or are damaged"))
            return
        sequence.tokens.append(token)
        sequence.logprobs.append(logprob)
        stopped = token in sequence.stops
        if stopped or len(sequence.tokens) >= sequence.limit:
            self._end(sequence, stopped)

    def _end(self, sequence: Sequence, stopped: bool) -> None:
        del self.active[sequence.row]
        computed = [*sequence.prompt, *sequence.tokens[:-1]]
        self._sessions[sequence.session] = Session(tokens=computed, row=sequence.row)
        self._owners[sequence.row] = sequence.session
        sequence.finish(
            Completion(
                token_ids=tuple(sequence.tokens),
                logprobs=tuple(sequence.logprobs),
                finish_reason="stop" if stopped else "length",
                policy_version=self.version,
            )
        )


def _common_prefix(computed: list[int], prompt: tuple[int, ...]) -> int:
    """How many tokens of the prompt are already computed; at least one is left, for its logits."""
    length = min(len(computed), len(prompt) - 1)
    if tuple(computed[:length]) == prompt[:length]:
        return length
    return next(index for index in range(length) if computed[index] != prompt[index])
