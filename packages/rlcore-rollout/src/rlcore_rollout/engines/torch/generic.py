"""Sampling with the model's own forward pass, for architectures that the decoder does not compute.

Sequences are generated one after another, so the bits of a completion never depend on others.

Axes: T tokens, V vocabulary.
"""

from __future__ import annotations

import copy
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import torch
from rlcore.errors import EngineError
from rlcore.types import TokenIds
from torch import Tensor, nn

from rlcore_rollout.engines.torch.sampling import draw
from rlcore_rollout.engines.torch.sequences import PromptKey, Sequence, key_of

MOST_PROMPTS = 8
"""Number of prompts whose computation is kept for siblings."""
CACHES = ("past_key_values", "cache_params")
"""Names under which models of transformers return and accept their cache."""
TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3}
"""Maximum difference in nats between log-probabilities with and without a cache; 0.5 for half precision."""


@dataclass(frozen=True, slots=True)
class Computed:
    """Tokens that a model has read, with its cache."""

    tokens: TokenIds
    cache: Any
    """None for a model without a usable cache."""


class PlainModel:
    """A causal model with its own cache. Without a cache that works, every token is computed from the beginning."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._cache = self._working_cache()

    def read(self, tokens: TokenIds, before: Computed | None = None) -> tuple[Tensor, Computed]:
        """Return the logits [V] after the tokens, float32. The cache of ``before``, a proper prefix, is used up."""
        if self._cache is None:
            return self._logits(tokens), Computed(tokens, None)
        held = {} if before is None else {self._cache: before.cache}
        new = tokens if before is None else tokens[len(before.tokens) :]
        output = self._run(new, use_cache=True, **held)
        return output["logits"][0, -1].float(), Computed(tokens, output[self._cache])

    def _logits(self, tokens: TokenIds) -> Tensor:
        logits: Tensor = self._run(tokens, use_cache=False)["logits"][0, -1].float()
        return logits

    def _run(self, tokens: TokenIds, **options: Any) -> Any:
        device = next(self.module.parameters()).device
        return self.module(input_ids=torch.tensor([list(tokens)], device=device), **options)

    @torch.no_grad()
    def _working_cache(self) -> str | None:
        """Return the name of the cache, if the log-probabilities with it equal those without."""
        self._cache = None
        tokens, vocabulary = TokenIds([1, 0, 2, 1, 3, 0, 2]), len(self._logits(TokenIds([0])))
        tokens = TokenIds([token % vocabulary for token in tokens])
        tolerance = TOLERANCE.get(next(self.module.parameters()).dtype, 0.5)
        try:
            output = self._run(tokens[:3], use_cache=True)
            self._cache = next((name for name in CACHES if output.get(name) is not None), None)
            computed = Computed(tokens[:3], output[self._cache])
            for end in (4, 5, len(tokens)):
                logits_V, computed = self.read(tokens[:end], computed)
                gap_V = logits_V.log_softmax(-1) - self._logits(tokens[:end]).log_softmax(-1)
                if not float(gap_V.abs().max()) < tolerance:
                    return None
        except Exception:  # a cache that cannot be continued raises any exception
            return None
        return self._cache


class PlainScheduler:
    """Generates waiting calls: checks of the weights first, others in order of arrival.

    After any method raises, `reset` must be called.
    """

    def __init__(self, module: nn.Module):
        self.version = 0
        self.waiting: deque[Sequence] = deque()
        self.active: Sequence | None = None
        self._model = PlainModel(module)
        self.load(module)

    def load(self, module: nn.Module) -> None:
        """Use the current weights of this or an equal module, and discard everything computed before."""
        self._model.module = module
        self._sessions: dict[str, Computed] = {}
        self._prompts: OrderedDict[PromptKey, tuple[Tensor, Computed]] = OrderedDict()
        self._computed: Computed | None = None
        """The tokens of the active sequence that the model has read."""

    def change(self, module: nn.Module, version: int) -> None:
        """Draw further tokens with new weights: those of a module of the same architecture.

        The active sequence continues with its cache, as those of `rlcore_rollout.engines.torch.scheduler.Scheduler` do.
        """
        self.version = version
        computed = self._computed
        self.load(module)
        if self.active is not None:
            self.active.change(version)
            self._computed = computed

    def reset(self) -> None:
        """Forget all sequences and everything computed."""
        self.waiting.clear()
        self.active = None
        self.load(self._model.module)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.active)

    def submit(self, sequence: Sequence) -> None:
        """Queue a call."""
        others = [*self.waiting, self.active]
        if any(other is not None and other.session == sequence.session and not other.cancelled for other in others):
            sequence.finish(EngineError(f"session {sequence.session!r} is already generating"))
        else:
            sequence.queue(self.waiting)

    def release(self, session: str) -> None:
        """Forget a session. None of its calls may be active."""
        self._sessions.pop(session, None)

    def step(self) -> None:
        """Draw one token for the active sequence, or for the next waiting one."""
        with torch.inference_mode(False), torch.no_grad():  # a forward pass may keep tensors that training needs later
            if self.active is not None and self.active.cancelled:
                self.active = None
            if self.active is not None:
                self._draw(self.active, self._read(self.active))
            elif self.waiting and not (sequence := self.waiting.popleft()).cancelled:
                self.active = sequence
                self._begin(sequence)

    def _begin(self, sequence: Sequence) -> None:
        sequence.begin(self.version)
        sequence.admitted = time.perf_counter()
        self._computed = self._sessions.pop(sequence.session, None)
        if self._computed is not None and _continues(sequence.prompt.token_ids, self._computed.tokens):
            self._draw(sequence, self._read(sequence))
            return
        key = key_of(sequence.prompt)
        if key not in self._prompts:
            self._prompts[key] = self._model.read(sequence.prompt.token_ids)
        self._prompts.move_to_end(key)
        logits_V, computed = self._prompts[key]
        self._computed = copy.deepcopy(computed)  # siblings continue the prompt, and a cache changes as it is continued
        while len(self._prompts) > MOST_PROMPTS:
            self._prompts.popitem(last=False)
        self._draw(sequence, logits_V)

    def _read(self, sequence: Sequence) -> Tensor:
        tokens = TokenIds.joined([sequence.prompt.token_ids, sequence.tokens])
        logits_V, self._computed = self._model.read(tokens, self._computed)
        return logits_V

    def _draw(self, sequence: Sequence, logits_V: Tensor) -> None:
        (token,), (logprob,) = draw(logits_V[None], [sequence.sampling], [sequence.numbers[len(sequence.tokens)]])
        try:
            reason = sequence.append(token, logprob)
        except EngineError as error:
            self.active = None
            sequence.finish(error)
            return
        if reason is not None:
            self.active = None
            assert self._computed is not None
            if not sequence.spans:  # else the next turn must not continue what old weights computed
                self._sessions[sequence.session] = self._computed
            sequence.complete(reason)


def _continues(tokens: TokenIds, computed: TokenIds) -> bool:
    return len(tokens) > len(computed) and tokens[: len(computed)] == computed
