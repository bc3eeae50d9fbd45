"""Schedules sequences: rows, sessions and shared prompts. Runs in one thread, independent of any event loop.

A call becomes a `Sequence`, which waits for a row of the cache in order of arrival; a check of the weights comes first.
The prompt of a session's first call is computed once and shared by all siblings that continue it. Everything after the
prompt belongs to the session and is stored in its row. Every step draws one token for each active row. A session's
data stays in its row until the row is needed, and is parked outside the cache afterwards.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable

import torch
from rlcore.errors import DataError, EngineError
from rlcore.types import FinishReason, MediaSpan, Prompt, Sampling, TokenIds
from torch import Tensor

from rlcore_rollout.engines.torch.cache import RowCache
from rlcore_rollout.engines.torch.decoder import Decoder, Rows
from rlcore_rollout.engines.torch.prefill import CHUNK, Features, Prefill
from rlcore_rollout.engines.torch.prompts import PromptRows, SharedPrompt
from rlcore_rollout.engines.torch.sampling import draw
from rlcore_rollout.engines.torch.sequences import PromptKey, Sequence, Session, common_prefix, key_of
from rlcore_rollout.engines.torch.vision import ImageEncoder
from rlcore_rollout.engines.torch.weights import Weights

ROW_PAD = 8
"""The number of rows in a step is padded to a multiple of this. Fewer rows take other code paths in the underlying
libraries."""
ANY_ROWS = Rows()
PATIENCE = 8
"""Maximum number of steps that a call waits so that its prompt can be computed together with others."""


class Scheduler:
    """Manages the rows and their contents. After any method raises, `reset` must be called."""

    def __init__(
        self,
        weights: Weights,
        slots: int,
        *,
        keep_all: bool,
        rows: Rows = ANY_ROWS,
        encoder: ImageEncoder | None = None,
    ):
        self.rows = -(-slots // ROW_PAD) * ROW_PAD
        self.slots = slots
        self.keep_all = keep_all
        self._product_rows = rows
        self.encoder = encoder
        self.version = 0
        self.waiting: deque[Sequence] = deque()
        self.active: dict[int, Sequence] = {}
        self.load(weights)

    def load(self, weights: Weights) -> None:
        """Load new weights and discard everything computed with the old ones."""
        self._decoder = Decoder(weights, self._product_rows)
        self._device = weights.device
        self._cache = RowCache(weights, self.rows)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._owners: dict[int, str] = {}
        self._prompts: OrderedDict[PromptKey, SharedPrompt] = OrderedDict()
        self._prompt_rows = PromptRows(weights)
        self._prefill = Prefill(self._decoder, self._cache, self._prompt_rows)
        self._since_admission = PATIENCE

    def change(self, weights: Weights, version: int) -> None:
        """Draw further tokens with new weights.

        Active sequences keep their keys and values and the prompts that they read. Everything else that was computed
        with the old weights is discarded, so no prompt is continued from it.
        """
        self.version = version
        if not self.active:
            self.load(weights)
            return
        for sequence in self.active.values():
            sequence.change(version)
        self._decoder = Decoder(weights, self._product_rows)
        self._prefill = Prefill(self._decoder, self._cache, self._prompt_rows)
        self._sessions.clear()
        self._owners.clear()
        self._prompts.clear()

    def reset(self) -> None:
        """Forget all sequences and everything computed."""
        self.waiting.clear()
        self.active.clear()
        self.load(self._decoder.weights)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.active)

    def submit(self, sequence: Sequence) -> None:
        """Queue a call."""
        sequence.queue(self.waiting)

    def release(self, session: str) -> None:
        """Forget a session. None of its calls may be active."""
        kept = self._sessions.pop(session, None)
        if kept is not None and kept.row is not None:
            del self._owners[kept.row]

    def step(self) -> None:
        """Admit waiting calls, then draw one token for every active sequence."""
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
        now = time.perf_counter()
        for sequence in sequences:
            sequence.admitted = now
        sequences, features = self._encode(self._refuse_twins(sequences))
        kept = {sequence: self._resume(sequence) for sequence in sequences}
        for sequence, session in kept.items():  # sessions that still have a row come first
            if session is not None and session.row is not None:
                self._occupy(session.row, sequence)
        fresh: dict[PromptKey, list[Sequence]] = {}
        continued: list[tuple[Sequence, int]] = []
        for sequence, session in kept.items():
            if sequence.row < 0:
                self._occupy(self._free_row(), sequence)
            if session is None:
                fresh.setdefault(key_of(sequence.prompt), []).append(sequence)
                continue
            if session.parked is not None:
                self._cache.put(sequence.row, session.parked)
            self._sit(sequence, session.shared)
            continued.append((sequence, common_prefix(session, sequence.prompt)))
        ready = [*self._prefill(continued, features), *self._start(fresh, features)]
        if ready:
            self._first_tokens(ready)

    def _encode(self, sequences: list[Sequence]) -> tuple[list[Sequence], Features]:
        """Encode each distinct image of the sequences once. Sequences with an unreadable one are answered."""
        if self.encoder is None or not any(sequence.prompt.media for sequence in sequences):
            return sequences, {}
        images: dict[str, tuple[MediaSpan, bytes]] = {}
        for sequence in sequences:
            for span in self._new_images(sequence):
                images.setdefault(span.sha256, (span, sequence.prompt.images[span.sha256]))
        features, accepted = self.encoder.encode(dict(images.values())), []
        for sequence in sequences:
            named = ((span.sha256, features.get(span.sha256)) for span in self._new_images(sequence))
            for name, error in named:
                if isinstance(error, DataError):
                    sequence.finish(EngineError(f"image {name[:12]} cannot be decoded: {error}"))
                    break
            else:
                accepted.append(sequence)
        return accepted, {name: found for name, found in features.items() if not isinstance(found, DataError)}

    def _new_images(self, sequence: Sequence) -> list[MediaSpan]:
        """Return the images whose tokens are not computed."""
        session, start = self._sessions.get(sequence.session), 0
        if session is not None and _continues(session, sequence.prompt):
            start = common_prefix(session, sequence.prompt)
        elif key_of(sequence.prompt) in self._prompts:
            return []
        return [span for span in sequence.prompt.media if span.offset + span.length > start]

    def _resume(self, sequence: Sequence) -> Session | None:
        """Return the sequence's session, or None if its computed tokens cannot be reused for the prompt."""
        session = self._sessions.pop(sequence.session, None)
        if session is None or _continues(session, sequence.prompt):
            return session
        if session.row is not None:
            del self._owners[session.row]
        return None

    def _start(self, fresh: dict[PromptKey, list[Sequence]], features: Features) -> list[tuple[Sequence, Tensor]]:
        """Return first calls, grouped by prompt, with the logits after it. Each unknown prompt is computed once."""
        leaders = {key: siblings[0] for key, siblings in fresh.items() if key not in self._prompts}
        pieces = []
        for leader in leaders.values():
            leader.seat = self._prompt_rows.free(len(leader.prompt), self._seated())
            pieces.append((leader, self._begin(leader.seat, leader.prompt)))
        computed = dict(self._prefill(pieces, features))
        for key, leader in leaders.items():
            assert leader.seat is not None
            leader.shared = self._prompt_rows.keep(leader.seat, leader.prompt, computed[leader])
            self._prompts[key] = leader.shared
        ready = []
        for key, siblings in fresh.items():
            self._prompts.move_to_end(key)
            shared = self._prompts[key]
            for sequence in siblings:
                if sequence.seat is None:
                    self._sit(sequence, shared)
                ready.append((sequence, shared.logits_V))
        while len(self._prompts) > self.slots:
            self._prompts.popitem(last=False)
        return ready

    def _begin(self, seat: int, prompt: Prompt) -> int:
        """Copy the whole chunks that a prompt shares with a computed one into its row, and return their length."""
        shared = max(self._prompts.values(), key=lambda known: common_prefix(known, prompt), default=None)
        length = 0 if shared is None else common_prefix(shared, prompt) // CHUNK * CHUNK
        if shared is not None and length:
            keys, values = shared.stretch
            self._prompt_rows.cache.put(seat, (keys[:, :, :, :length], values[:, :, :length]))
        return length

    def _sit(self, sequence: Sequence, shared: SharedPrompt) -> None:
        sequence.seat = self._prompt_rows.seat(shared, self._seated())
        sequence.shared = shared

    def _seated(self) -> Counter[int]:
        """Return the number of active sequences that continue the prompt in each row."""
        return Counter(sequence.seat for sequence in self.active.values() if sequence.seat is not None)

    def _refuse_twins(self, sequences: list[Sequence]) -> list[Sequence]:
        """Return the sequences, excluding those whose session is already generating."""
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
            sequence.begin(self.version)
        samplings = [sequence.sampling for sequence, _ in ready] + [None] * padding
        numbers = [sequence.numbers[0] for sequence, _ in ready] + [0.0] * padding
        for (sequence, _), token, logprob in zip(ready, *draw(logits_BV, samplings, numbers), strict=False):
            self._append(sequence, token, logprob)

    def _integers(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)

    # Rows and sessions

    def _occupy(self, row: int, sequence: Sequence) -> None:
        self._owners.pop(row, None)
        sequence.row = row
        self.active[row] = sequence

    def _free_row(self) -> int:
        """Return the first empty row, or park the session that has been idle longest and return its row."""
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
        session.parked = self._cache.take(row, 0, session.place)
        session.row = None
        del self._owners[row]
        self._forget_oldest()
        return row

    def _forget_oldest(self) -> None:
        """Limit parked sessions to the memory of four caches. Does nothing in deterministic mode."""
        if self.keep_all:
            return
        budget = 4 * sum(cache.rows * cache.capacity for cache in (self._cache, self._prompt_rows.cache))
        parked = deque(name for name, session in self._sessions.items() if session.parked is not None)
        while parked and self._positions(parked) > budget:
            del self._sessions[parked.popleft()]

    def _positions(self, names: Iterable[str]) -> int:
        """Return the number of positions that these sessions keep. A prompt shared by several counts once."""
        sessions = [self._sessions[name] for name in names]
        prompts = {session.shared for session in sessions}
        return sum(session.place for session in sessions) + sum(len(prompt.tokens) for prompt in prompts)

    def _gather(self) -> int:
        """Move active sequences to the low rows if that makes steps smaller. Returns the number of rows in a step."""
        last = max(self.active)
        needed = -(-len(self.active) // ROW_PAD) * ROW_PAD
        if last < needed + ROW_PAD:
            return -(-(last + 1) // ROW_PAD) * ROW_PAD
        for row in sorted(row for row in self.active if row >= needed):
            target = next(row for row in range(needed) if row not in self.active)
            if target in self._owners:
                self._park(self._sessions[self._owners[target]])
            sequence = self.active.pop(row)
            self._cache.move(row, target, sequence.place)
            self._occupy(target, sequence)
        return needed

    # Decoding

    def _decode(self) -> None:
        """Draw one token for every active sequence."""
        count = self._gather()
        tokens, places, positions, numbers = [0] * count, [0] * count, [0] * count, [0.0] * count
        samplings: list[Sampling | None] = [None] * count
        seats: list[int | None] = [None] * count
        for row, name in self._owners.items():
            if row < count:  # an idle session's row is computed too, so its write goes to an unused position
                places[row] = self._sessions[name].place
        for row, sequence in self.active.items():
            made = len(sequence.tokens)
            tokens[row], places[row], positions[row] = sequence.tokens[-1], sequence.place, sequence.position
            numbers[row] = sequence.numbers[made]
            samplings[row], seats[row] = sequence.sampling, sequence.seat
        longest = max(places[row] for row in self.active)
        self._cache.reserve(max(places) + 1)
        shared = self._prompt_rows.share(seats, pick=False)
        logits_BV = self._decoder.decode(
            self._integers(tokens), self._integers(places), self._integers(positions), longest, self._cache, shared
        )
        drawn, logprobs = draw(logits_BV, samplings, numbers)
        for row, sequence in list(self.active.items()):
            self._append(sequence, drawn[row], logprobs[row])

    def _append(self, sequence: Sequence, token: int, logprob: float) -> None:
        try:
            reason = sequence.append(token, logprob)
        except EngineError as error:
            self.active.pop(sequence.row)
            sequence.finish(error)
            return
        if reason is not None:
            self._end(sequence, reason)

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        del self.active[sequence.row]
        if not sequence.spans:  # else the next turn must not continue what old weights computed
            computed = TokenIds.joined([sequence.prompt.token_ids, sequence.tokens[:-1]])
            assert sequence.shared is not None
            self._sessions[sequence.session] = Session(
                tokens=computed, media=sequence.prompt.media, shared=sequence.shared, row=sequence.row
            )
            self._owners[sequence.row] = sequence.session
        sequence.complete(reason)


def _continues(session: Session, prompt: Prompt) -> bool:
    """Return whether a session's computed tokens can be reused for a prompt."""
    return common_prefix(session, prompt) >= len(session.shared.tokens)
