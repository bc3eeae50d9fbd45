"""The description of a cluster, a TOML file: its cards, its network, measured efficiencies and the trajectories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from rlcore.config.layers import file_layer
from rlcore.config.schema import LARGEST, Table
from rlcore.config.tables import validate_options
from rlcore.errors import UserError, did_you_mean

GIGA = 1e9
Positive = Annotated[float, Field(gt=0, le=1e9)]
NonNegative = Annotated[float, Field(ge=0, le=1e9)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=LARGEST)]


class CardTable(Table):
    """``[card]``: a card of another kind than those in `CARDS`."""

    tflops: Positive
    """Dense bfloat16 TFLOP/s."""
    memory_gb: Positive
    """Memory in GB."""
    bandwidth_gb_s: Positive
    """Bandwidth of the memory in GB/s."""
    link_gb_s: Positive
    """Bandwidth to the other cards of the node in GB/s, in one direction."""


def _card(tflops: float, memory_gb: float, bandwidth_gb_s: float, link_gb_s: float) -> CardTable:
    return CardTable(tflops=tflops, memory_gb=memory_gb, bandwidth_gb_s=bandwidth_gb_s, link_gb_s=link_gb_s)


CARDS = {
    "A100": _card(312, 80, 2039, 300),
    "H20": _card(148, 96, 4000, 450),
    "H100": _card(989, 80, 3350, 450),
    "H800": _card(989, 80, 3350, 200),
    "H200": _card(989, 141, 4800, 450),
    "B200": _card(2250, 180, 7700, 900),
    "L40S": _card(362, 48, 864, 32),
}
"""SXM cards, and the L40S on PCIe, from NVIDIA's data sheets, without sparsity."""


class EfficiencyTable(Table):
    """``[efficiency]``: which part of the hardware's rates a run reaches. ``--calibrate`` measures some of them."""

    iteration_s: NonNegative = 0.004
    """Seconds that an engine takes for each token of its sequences besides the computation: scheduling, sampling,
    kernel launches."""
    decoding: Share = 0.6
    """Share of the memory bandwidth that decoding reaches, and of the FLOP/s for many sequences."""
    prefill: Share = 0.5
    """Share of the FLOP/s that the computation of prompts reaches."""
    training: Share = 0.35
    """Share of the FLOP/s that updates reach."""
    update_s: NonNegative = 1.0
    """Seconds of an optimiser step besides the computation."""
    transfer: Share = 0.025
    """Share of the network's bandwidth that a transfer of weights reaches. Published transfers reach about 10 GB/s
    between nodes with 400 GB/s."""
    transfer_s: NonNegative = 0.5
    """Seconds of a transfer besides the bytes."""
    pause_s: NonNegative = 0.1
    """Seconds for which an engine stops at a transfer."""
    shared_cards: Annotated[float, Field(ge=1, le=100)] = 1.0
    """Factor by which updates take longer on cards that also sample, for example because weights are offloaded."""


class TrajectoriesTable(Table):
    """``[trajectories]``: what is sampled. ``--lengths`` measures it. Unset values follow from the recipe."""

    tokens: Positive | None = None
    """Mean number of sampled tokens."""
    spread: NonNegative = 1.0
    """Standard deviation of the logarithm of the tokens, whose distribution is log-normal up to the limit."""
    turns: Count | None = None
    """Turns of the policy."""
    tool_s: NonNegative | None = None
    """Mean seconds of tools, environment and rewards after a turn."""
    tool_spread: NonNegative = 1.0
    """Standard deviation of the logarithm of these seconds."""


class ClusterTable(Table):
    """A cluster of equal nodes."""

    nodes: Count
    """Number of nodes."""
    gpus_per_node: Count = 8
    """Cards of a node."""
    card: str | CardTable
    """Name of a card, such as ``H100``, or a table ``[card]``."""
    network_gb_s: Positive
    """Bandwidth of the network of a node in GB/s, in one direction: eight links of 400 Gbit/s are 400."""
    efficiency: EfficiencyTable = EfficiencyTable()
    """Measured efficiencies."""
    trajectories: TrajectoriesTable = TrajectoriesTable()
    """What is sampled."""

    @field_validator("card")
    @classmethod
    def _known_card(cls, card: str | CardTable) -> str | CardTable:
        if isinstance(card, str) and card not in CARDS:
            near = did_you_mean(card, CARDS)
            known = f"known cards are {', '.join(CARDS)}; a table [card] describes another"
            raise ValueError(f"{near} {known}" if near else known)
        return card

    @property
    def kind(self) -> CardTable:
        """The sizes of the card."""
        return CARDS[self.card] if isinstance(self.card, str) else self.card

    @property
    def gpus(self) -> int:
        """The number of all cards."""
        return self.nodes * self.gpus_per_node


def read_cluster(path: Path) -> ClusterTable:
    """Read the description of a cluster.

    Raises:
        UserError: the file cannot be read, or describes no cluster.
    """
    table = validate_options(ClusterTable, [file_layer(path)], subject=f"the cluster {path}")
    assert isinstance(table, ClusterTable)
    return table


def sizes_of(cluster: ClusterTable, asked: tuple[int, ...], usual: tuple[int, ...]) -> list[int]:
    """The numbers of cards to plan for: those that were asked for, or the usual ones that the cluster has.

    Raises:
        UserError: the cluster has fewer cards.
    """
    if too_many := [count for count in asked if count > cluster.gpus]:
        raise UserError(
            f"the cluster has fewer than {max(too_many):,} cards",
            found=f"{cluster.nodes:,} nodes with {cluster.gpus_per_node} cards: {cluster.gpus:,}",
            where="--gpus",
            fix=f"--gpus {cluster.gpus}, or more nodes in the description of the cluster",
        )
    return sorted(set(asked or (*(count for count in usual if count < cluster.gpus), cluster.gpus)))
