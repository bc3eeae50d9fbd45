"""The tensors of the parity table: seeded, float64, padded ``[B, T]`` as in TRL and verl.

Axes: B trajectories, T tokens of the longest response. Rows of every case have different lengths and holes (tokens in
the middle of a row that the policy did not generate), as in multi-turn episodes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

TRAJECTORIES, TOKENS = 8, 12
UNEQUAL_GROUPS = (5, 2, 5, 2, 9, 2, 5, 2)
"""Unsorted labels of groups of three, four and one."""
EQUAL_GROUPS = (0, 0, 0, 0, 1, 1, 1, 1)
"""TRL supports only adjacent groups of the same size."""


class Case(NamedTuple):
    """The distance between the policies in nats per token, and whether one trajectory has no trained token."""

    seed: int
    ratio_spread: float
    reference_spread: float
    empty_row: bool = False
    unscored_by_engine: bool = False


CASES = {
    "holes": Case(1, 0.25, 0.5),
    "empty-row": Case(2, 0.25, 0.5, empty_row=True),
    "large": Case(3, 1.5, 3.0),
    "near": Case(4, 0.002, 0.5),
    "engine-nan": Case(5, 0.25, 0.5, unscored_by_engine=True),
}


def mask_of(generator: torch.Generator, *, empty_row: bool) -> Tensor:
    """The tokens that the policy generated: rows of 3 to T tokens, some with a hole of two. The last row is full."""
    mask_BT = torch.zeros(TRAJECTORIES, TOKENS, dtype=torch.bool)
    for row, length in enumerate(torch.randint(3, TOKENS + 1, (TRAJECTORIES,), generator=generator).tolist()):
        mask_BT[row, :length] = True
        if row % 2 and length > 5:
            mask_BT[row, 2:4] = False
    mask_BT[-1] = True
    if empty_row:
        mask_BT[3] = False
    return mask_BT


def make(case: Case) -> dict[str, Tensor]:
    """The tensors of one case by name. Rewards are on generated tokens, labels are int64, the rest is float64.

    ``square-sums`` are the sums of squared probabilities over the vocabulary.
    """
    generator = torch.Generator().manual_seed(case.seed)

    def normal(scale: float, *shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (TRAJECTORIES, TOKENS)
    mask_BT = mask_of(generator, empty_row=case.empty_row)
    old_BT = -torch.rand(*shape, generator=generator, dtype=torch.float64) * 4 - 0.01
    rewards_B = torch.rand(TRAJECTORIES, generator=generator, dtype=torch.float64)
    if case.ratio_spread > 1:
        rewards_B[: TRAJECTORIES // 2] = 0.25  # a group with equal rewards
    tensors = {
        "mask": mask_BT,
        "unequal-groups": torch.tensor(UNEQUAL_GROUPS),
        "equal-groups": torch.tensor(EQUAL_GROUPS),
        "rewards": rewards_B,
        "token-rewards": normal(1.0, *shape) * mask_BT,
        "baselines": torch.rand(TRAJECTORIES, generator=generator, dtype=torch.float64),
        "values": normal(1.0, *shape),
        "old-logprobs": old_BT,
        "logprobs": old_BT + normal(case.ratio_spread, *shape),
        "reference-logprobs": old_BT + normal(case.reference_spread, *shape),
        "engine-logprobs": old_BT + normal(0.3, *shape),
        "advantages": normal(1.0, TRAJECTORIES),
        "token-advantages": normal(1.0, *shape),
        "new-values": normal(1.0, *shape),
        "returns": normal(1.0, *shape),
    }
    squares_BT = torch.rand(*shape, generator=generator, dtype=torch.float64)
    tensors["square-sums"] = old_BT.mul(2).exp() + squares_BT * (1 - old_BT.exp()).square()
    tensors["several-rewards"] = torch.rand(TRAJECTORIES, 2, generator=generator, dtype=torch.float64)
    tensors["several-rewards"][: TRAJECTORIES // 2, 0] = 0.5  # a group with equal values of a reward
    if case.unscored_by_engine:
        tensors["engine-logprobs"][1, 0] = tensors["engine-logprobs"][-1, 5] = float("nan")
    return tensors


def all_inputs() -> dict[str, Tensor]:
    """All tensors by ``CASE/NAME``."""
    return {f"{name}/{key}": tensor for name, case in CASES.items() for key, tensor in make(case).items()}


def of_case(inputs: dict[str, Tensor], case: str) -> dict[str, Tensor]:
    """The tensors of one case."""
    return {key.removeprefix(f"{case}/"): tensor for key, tensor in inputs.items() if key.startswith(f"{case}/")}
