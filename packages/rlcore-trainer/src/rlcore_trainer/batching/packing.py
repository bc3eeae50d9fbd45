"""Pack sequences into micro-batches: one row of concatenated sequences without padding, each shared prefix once.

Axes: ``N`` the tokens of a packed row, ``M`` its trained tokens, ``T`` the trained tokens of a sequence.

The log-probability of the token at position t is computed from the hidden state at t-1. A micro-batch therefore stores,
for each trained token, the row position of the token before it. The last trained token of a sequence and all tokens
after it are not fed.

The decisions of a control policy are tokens, too. Each is computed from its own row of the arrays, so its position is
its own, and no prefix is shared.

Sequences that begin with the same prompt or the same context form a family. The row contains their prefix once,
followed by the remainder of each sequence, with position ids that continue from the end of the prefix. A row with
images has three position ids for each token, those of each whole sequence, so the tokens after an image continue after
its largest position, and the image is stored once however many sequences contain it. The last hidden state of the
prefix predicts the first token of every remainder. A trained token inside the prefix belongs to one member and counts
only for that member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from rlcore.types import LossMask
from rlcore_models.positions import rotary_positions
from torch import Tensor

from rlcore_trainer.batching.arrays import numbers_of, tensor_of
from rlcore_trainer.batching.packed_images import ImagePlaces, PackedImages
from rlcore_trainer.batching.packed_layout import PackedLayout
from rlcore_trainer.batching.prefix_groups import Family, cut, families_of
from rlcore_trainer.batching.sequence import TrainingSequence
from rlcore_trainer.batching.sequence_metrics import Rows
from rlcore_trainer.batching.sharding import fair_size, shards
from rlcore_trainer.batching.team import Team

__all__ = ["MicroBatch", "Minibatch", "Share", "TrainingSequence", "divide", "pack", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """A batch for one forward pass. Trained tokens are grouped by sequence."""

    token_ids_1N: Tensor
    position_ids_1N: Tensor
    """Position of each token in its sequence."""
    layout: PackedLayout
    before_M: Tensor
    """Row position of the hidden state that predicts each trained token."""
    targets_M: Tensor
    sequence_M: Tensor
    """Index of each trained token's sequence among all packed sequences. Each segment of a trajectory is a separate
    sequence."""
    advantages_M: Tensor
    weights_M: Tensor
    engine_logprobs_M: Tensor
    """The engine's log-probabilities; NaN where it returned none."""
    images: PackedImages | None = None
    """The images of the row; None if it has none."""
    rotary_3N: Tensor | None = None
    """Temporal, vertical and horizontal position of each token; None if the row has no images."""
    arrays: Mapping[str, Tensor] = field(default_factory=dict)
    """What a control policy saw and chose at each position, [N, ...]; empty for tokens of a text."""


def plan(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Assign items to micro-batches of at most ``max_tokens``, longest first.

    Sequences in a micro-batch have similar lengths, which makes attention on a CPU faster. An item longer than the
    budget gets a separate micro-batch. Ties keep the given order, so the plan depends only on the arguments.
    """
    batches: list[list[int]] = []
    room = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not batches or lengths[i] > room:
            batches.append([])
            room = max_tokens
        batches[-1].append(i)
        room -= lengths[i]
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The micro-batches of one process as plain values, which can be sent to it."""

    sequences: Sequence[TrainingSequence]
    """The sequences of these micro-batches, with their images and no others."""
    places: Sequence[int]
    """Index of each sequence among all sequences that were divided."""
    batches: Sequence[Sequence[Family]]
    """The families of each micro-batch. Their members are indices of `sequences`."""
    padding: int = 0
    """Number of micro-batches without a trained token that follow. All processes have equally many micro-batches,
    because a forward or backward pass may contain collective operations."""
    padded_with: TrainingSequence | None = None
    """The single token of a micro-batch without a trained token."""

    @property
    def trained(self) -> int:
        """Number of trained tokens."""
        return sum(self.sequences[i].trained for batch in self.batches for family in batch for i in family.members)

    def micro_batches(self, device: torch.device, team: Team | None = None) -> list[MicroBatch]:
        """Return the micro-batches on a device, which the processes of a team compute together."""
        found = [_pack(self.sequences, self.places, families, device, team) for families in self.batches]
        if self.padded_with is not None:
            alone = [Family.of([0], 0, [1])]
            found += [_pack([self.padded_with], [0], alone, device, team) for _ in range(self.padding)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """A process's share of a mini-batch, with what was computed once before the first update on its rollout."""

    share: Share
    old: Rows | None = None
    """Log-probabilities before the first update."""
    reference: Rows | None = None
    """Log-probabilities of the reference policy; None without a KL term in the loss."""
    teacher: Rows | None = None
    """Log-probability and entropy of the teacher [T, 2]; None unless distillation uses sampled tokens."""
    values: Rows | None = None
    """Values of the critic before the first update."""
    returns: Rows | None = None
    """Targets of the critic."""


def divide(
    sequences: Sequence[TrainingSequence],
    max_tokens: int,
    processes: int = 1,
    *,
    team_size: int = 1,
    pairs: bool = False,
) -> list[Share]:
    """Divide sequences into the micro-batches of each process, of at most ``max_tokens`` fed tokens.

    The micro-batches of all processes together contain every trained token exactly once. Sequences without a trained
    token are omitted. A family that fits stays together; a larger one is cut into several, each with the prefix. A
    micro-batch exceeds ``max_tokens`` only if it consists of a single longer sequence.

    With several processes, micro-batches are made small enough to leave work for each of them. A process may have no
    work, but the main process has some whenever there is any. The others are padded to equally many micro-batches.

    The processes of a team have the same micro-batches, of at most ``max_tokens`` for each of them. Each trains other
    sequences of a micro-batch, so that a loss of whole sequences needs no communication.

    With ``pairs``, each sequence with an even index stays in one micro-batch with the next one, for a loss that
    compares both, and a micro-batch that consists of a single longer pair exceeds ``max_tokens``.

    Raises:
        ValueError: the first token of a sequence is marked as trained, but no token precedes it; or the number of
            advantages of a sequence differs from its number of trained tokens.
    """
    for sequence in sequences:
        if sequence.lag and sequence.loss_mask[:1].tobytes() == b"\1":
            raise ValueError("the first token of a sequence cannot be trained, because no token precedes it")
        if isinstance(sequence.advantage, Tensor) and len(sequence.advantage) != sequence.trained:
            raise ValueError(f"{len(sequence.advantage)} advantages for {sequence.trained} trained tokens")
    units = _pairs(sequences) if pairs else [[family] for family in families_of(sequences)]
    teams, max_tokens = processes // team_size, max_tokens * team_size
    if teams > 1:
        max_tokens = fair_size([_fed(unit) for unit in units], max_tokens, teams)
    if not pairs:
        units = [[part] for (family,) in units for part in cut(family, max_tokens)]
    batches = [
        [family for j in batch for family in units[j]] for batch in plan([_fed(unit) for unit in units], max_tokens)
    ]
    if processes == 1:
        return [Share(sequences=sequences, places=range(len(sequences)), batches=batches)]
    sizes = [_fed(batch) for batch in batches]
    hands = shards(sizes, teams)
    most = max(map(len, hands))
    padded_with = _untrained(sequences[batches[0][0].members[0]]) if batches else None
    found = [_share(sequences, [batches[i] for i in mine], most - len(mine), padded_with) for mine in hands]
    return [part for one in found for part in _parts(one, team_size)]


def _pairs(sequences: Sequence[TrainingSequence]) -> list[list[Family]]:
    """Return the families of each pair: one if both share their prompt, or else two."""
    return [
        [
            replace(one, members=tuple(start + i for i in one.members))
            for one in families_of(sequences[start : start + 2])
        ]
        for start in range(0, len(sequences), 2)
    ]


def _fed(families: Sequence[Family]) -> int:
    return sum(family.fed for family in families)


def _share(
    sequences: Sequence[TrainingSequence],
    batches: Sequence[Sequence[Family]],
    padding: int,
    padded_with: TrainingSequence | None,
) -> Share:
    """Return the micro-batches of a process with the sequences and the images that it needs."""
    places = sorted({i for batch in batches for family in batch for i in family.members})
    here = {place: i for i, place in enumerate(places)}
    return Share(
        sequences=[_alone(sequences[i]) for i in places],
        places=places,
        batches=[
            [replace(family, members=tuple(here[i] for i in family.members)) for family in batch] for batch in batches
        ],
        padding=padding,
        padded_with=padded_with,
    )


def _parts(share: Share, team_size: int) -> list[Share]:
    """Return the share of each process of a team: of each micro-batch, a process trains some sequences."""
    if team_size == 1:
        return [share]
    trained: list[set[int]] = [set() for _ in range(team_size)]
    for batch in share.batches:
        members = [i for family in batch for i in family.members]
        for mine, places in zip(trained, shards([share.sequences[i].trained for i in members], team_size), strict=True):
            mine |= {members[place] for place in places}
    return [
        replace(share, sequences=[one if i in mine else _read(one) for i, one in enumerate(share.sequences)])
        for mine in trained
    ]


def _read(sequence: TrainingSequence) -> TrainingSequence:
    """Return a sequence of which no token is trained."""
    return replace(sequence, loss_mask=LossMask([False] * len(sequence)), advantage=0.0)


def _untrained(sequence: TrainingSequence) -> TrainingSequence:
    """Return the first token of a sequence, which is not trained."""
    return TrainingSequence(
        token_ids=sequence.token_ids[:1],
        loss_mask=LossMask([False]),
        arrays={name: rows[:1] for name, rows in sequence.arrays.items()},
    )


def _alone(sequence: TrainingSequence) -> TrainingSequence:
    """Return a sequence with its own images only, and without views of larger tensors, which pickle copies whole."""
    names = {span.sha256 for span in sequence.media}
    advantage = sequence.advantage
    return replace(
        sequence,
        images={name: image for name, image in sequence.images.items() if name in names},
        advantage=advantage.clone() if isinstance(advantage, Tensor) else advantage,
    )


def pack(sequences: Sequence[TrainingSequence], max_tokens: int, device: torch.device) -> list[MicroBatch]:
    """Return the micro-batches of a single process; see `divide`."""
    (share,) = divide(sequences, max_tokens)
    return share.micro_batches(device)


def _pack(
    sequences: Sequence[TrainingSequence],
    index: Sequence[int],
    families: Sequence[Family],
    device: torch.device,
    team: Team | None,
) -> MicroBatch:
    token_ids: list[Tensor] = []
    positions: list[Tensor] = []
    before: list[Tensor] = []
    targets: list[Tensor] = []
    advantages: list[Tensor] = []
    weights: list[float] = []
    engine: list[Tensor] = []
    owners: list[int] = []
    counts: list[int] = []
    stretches: list[int | tuple[int, list[int]]] = []
    places, rotary = ImagePlaces(), list[Tensor]()
    arrays: dict[str, list[Tensor]] = {}
    start = 0
    for family in families:
        prompt, end = family.prompt, start + family.prompt
        longest = sequences[family.longest]
        token_ids.append(tensor_of(longest.token_ids[:prompt]))
        positions.append(torch.arange(prompt))
        places.add(longest, range(prompt), start)
        rotary.append(_rotary(longest, range(prompt)))
        for i, response in zip(family.members, family.responses, strict=True):
            sequence, ids = sequences[i], tensor_of(sequences[i].token_ids)
            trained_T = tensor_of(sequence.loss_mask).nonzero()[:, 0]
            token_ids.append(ids[prompt : prompt + response])
            positions.append(torch.arange(prompt, prompt + response))
            places.add(sequence, range(prompt, prompt + response), end)
            rotary.append(_rotary(sequence, range(prompt, prompt + response)))
            before.append(trained_T - sequence.lag + torch.where(trained_T <= prompt, start, end - prompt))
            for name, numbers in sequence.arrays.items():
                arrays.setdefault(name, []).append(numbers_of(numbers[prompt : prompt + response]))
            targets.append(ids[trained_T])
            advantages.append(torch.as_tensor(sequence.advantage, dtype=torch.float64).expand(len(trained_T)))
            engine.append(
                tensor_of(sequence.logprobs)[trained_T]
                if len(sequence.logprobs)
                else torch.full((len(trained_T),), torch.nan, dtype=torch.float64)
            )
            weights.append(sequence.weight)
            owners.append(index[i])
            counts.append(len(trained_T))
            end += response
        start = end
        responses = [length for length in family.responses if length]
        if prompt and responses:
            stretches.append((prompt, responses))
        else:
            stretches += [prompt] if prompt else responses

    def repeated(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        """Repeat the value of each sequence for each of its trained tokens."""
        return torch.tensor(values, dtype=dtype).repeat_interleave(torch.tensor(counts)).to(device)

    images = places.packed(device)
    return MicroBatch(
        token_ids_1N=torch.cat(token_ids).long().to(device)[None],
        position_ids_1N=torch.cat(positions).to(device)[None],
        layout=PackedLayout.of(stretches, device, team=team),
        before_M=torch.cat(before).to(device),
        targets_M=torch.cat(targets).long().to(device),
        sequence_M=repeated(owners, torch.long),
        # float64, so that a later conversion to float32 or float64 rounds at most once.
        advantages_M=torch.cat(advantages).to(device),
        weights_M=repeated(weights, torch.float64),
        engine_logprobs_M=torch.cat(engine).to(device),
        images=images,
        rotary_3N=torch.cat(rotary, dim=1).to(device) if images is not None else None,
        arrays={name: torch.cat(rows).to(device) for name, rows in arrays.items()},
    )


def _rotary(sequence: TrainingSequence, stretch: range) -> Tensor:
    """Return the rotary positions of a stretch of a sequence, [3, T]."""
    if not sequence.media or not stretch:
        return torch.arange(stretch.start, stretch.stop).expand(3, -1)
    axes = rotary_positions(stretch.stop, sequence.media)
    return torch.stack([torch.frombuffer(axis, dtype=torch.int64)[stretch.start :] for axis in axes])
