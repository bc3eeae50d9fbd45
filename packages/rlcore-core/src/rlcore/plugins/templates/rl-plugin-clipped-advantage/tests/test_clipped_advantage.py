"""The conformance suite, and advantages that were computed by hand."""

import torch
from rl_plugin_clipped_advantage.advantage import clipped
from rlcore.testing import check_plugin


def test_plugin_conforms() -> None:
    check_plugin("clipped-advantage")


def test_advantages_are_those_computed_by_hand() -> None:
    # Group 7 has the rewards 0, 1 and 5, so the mean 2; group 3 has 1 and 1.
    rewards_N = torch.tensor([0.0, 1.0, 1.0, 5.0, 1.0], dtype=torch.float64)
    advantages_N, metrics = clipped(rewards_N, torch.tensor([7, 3, 7, 7, 3]), limit=2.5)
    assert advantages_N.tolist() == [-2.0, 0.0, -1.0, 2.5, 0.0]
    assert metrics["advantage/clipped"] == 0.2
