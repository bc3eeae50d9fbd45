"""How long the parts of a step take, from the sizes of the model and the rates of the cards: closed forms.

A dense forward pass takes 2 FLOPs per parameter and token, a backward pass twice as many, and causal attention over T
tokens 2 · layers · width · T² FLOPs in the forward pass. A decoding iteration reads the weights and the caches of all
sequences, or is limited by the FLOP/s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rlcore_trainer.planning.cluster import GIGA, CardTable, EfficiencyTable

BUCKET_BYTES = 512e6
"""Weights that a node forwards at a time: the depth of the tree of nodes delays the last one by so many per level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The sizes of a policy. ``active`` are the parameters that compute one token."""

    parameters: float
    active: float
    layers: int
    width: int
    key_width: int
    element_bytes: float = 2

    @property
    def bytes(self) -> float:
        """The weights."""
        return self.parameters * self.element_bytes

    @property
    def cache_bytes(self) -> float:
        """The keys and values of a token."""
        return 2 * self.layers * self.key_width * self.element_bytes

    def forward_flops(self, tokens: float, squares: float) -> float:
        """FLOPs of a forward pass over sequences with this sum of lengths and of squared lengths."""
        return 2 * self.active * tokens + 2 * self.layers * self.width * squares


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """An engine: a copy of the model on ``cards`` cards, for at most ``slots`` sequences."""

    model: Model
    card: CardTable
    efficiency: EfficiencyTable
    cards: int
    slots: int

    def iteration(self, sequences: float, context: float) -> tuple[float, float]:
        """Seconds of the next iteration, and by how much those of each later one are longer.

        Args:
            sequences: the number of active sequences
            context: the sum of their lengths
        """
        share = self.efficiency.decoding * self.cards
        bandwidth, flops = share * self.card.bandwidth_gb_s * GIGA, share * self.card.tflops * 1e12
        dense = self.model.active / self.model.parameters
        touched = 1 - (1 - dense) ** sequences if dense < 1 else 1.0  # experts that any of the sequences uses
        read = (self.model.bytes * touched + context * self.model.cache_bytes) / bandwidth
        computed = 2 * self.model.active * sequences / flops
        growth = sequences * self.model.cache_bytes / bandwidth if read > computed else 0.0
        return self.efficiency.iteration_s + max(read, computed), growth

    def prefill_s(self, tokens: float) -> float:
        """Seconds for the tokens of a prompt or of an observation."""
        return self.model.forward_flops(tokens, 0) / (self.efficiency.prefill * self.cards * self.card.tflops * 1e12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """What an update costs on ``cards`` cards."""

    model: Model
    card: CardTable
    efficiency: EfficiencyTable
    cards: int
    passes: float
    """Forward passes per token: 3 for an update, 1 for each log-probability, 1 for checkpointed activations."""
    replica: int = 1
    """Cards that compute a sequence together."""
    micro_batch: int = 4096
    """Tokens of a micro-batch."""
    gathered_gb_s: float | None = None
    """Bandwidth of a card within the group that divides the weights; None if each card has all."""
    shares_cards: bool = False

    def compute_s(self, tokens: float, squares: float, sequences: int, longest: float) -> float:
        """Seconds of the computation on the card with the most work: sequences are not divided between replicas."""
        ranks = max(1, self.cards // self.replica)
        mean = tokens / sequences
        most = max(longest, mean * math.ceil(sequences / ranks), tokens / ranks)
        flops = self.passes * self.model.forward_flops(tokens, squares) * most / tokens
        return flops / (self.efficiency.training * self.replica * self.card.tflops * 1e12)

    def gather_s(self, tokens: float) -> float:
        """Seconds for the weights that cards send each other: two gathers and a reduction per micro-batch."""
        if self.gathered_gb_s is None:
            return 0.0
        batches = math.ceil(tokens / max(1, self.cards // self.replica) / self.micro_batch)
        return batches * 3 * self.model.bytes / (self.gathered_gb_s * GIGA)

    def seconds(self, tokens: float, squares: float, sequences: int, longest: float, updates: int = 1) -> float:
        """Seconds of ``updates`` optimiser steps on these sequences; weights are gathered during the computation."""
        work = max(self.compute_s(tokens, squares, sequences, longest), self.gather_s(tokens))
        return updates * self.efficiency.update_s + work * (self.efficiency.shared_cards if self.shares_cards else 1.0)


def transfer_s(
    model: Model, efficiency: EfficiencyTable, network_gb_s: float, nodes: int, *, share: float = 1.0
) -> float:
    """Seconds until the engines on ``nodes`` nodes have new weights, which nodes pass on in a tree.

    A node receives this share of the model: all of it unless an engine has several nodes.
    """
    rate, sent = efficiency.transfer * network_gb_s * GIGA, share * model.bytes
    depth = math.ceil(math.log2(max(1, nodes)))
    return efficiency.transfer_s + (sent + depth * min(BUCKET_BYTES, sent)) / rate
