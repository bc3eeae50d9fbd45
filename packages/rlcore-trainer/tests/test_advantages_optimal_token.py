"""``optimal-token-baseline`` against a slow loop, and the norms of gradients against automatic differentiation."""

from __future__ import annotations

import pytest
import torch
from rlcore_trainer.algorithms.advantages.gradients import gradient_norms
from rlcore_trainer.algorithms.advantages.optimal_token_baseline import optimal_token_baseline
from torch import Tensor

pytestmark = pytest.mark.numeric


def double(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_rollout(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rewards, groups of one to four, norms, and written tokens with gaps and an empty row."""
    generator = torch.Generator().manual_seed(seed)
    mask_NT = torch.rand(9, 7, generator=generator) < 0.7
    mask_NT[3] = False
    rewards_NT = torch.randn(9, 7, generator=generator, dtype=torch.float64) * mask_NT
    norms_NT = torch.rand(9, 7, generator=generator, dtype=torch.float64)
    return rewards_NT, torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 0]), norms_NT, mask_NT


def advantages(rewards_NT: Tensor, groups_N: Tensor, norms_NT: Tensor, mask_NT: Tensor) -> Tensor:
    return optimal_token_baseline(rewards_NT.sum(1), rewards_NT, groups_N, norms_NT, mask_NT)[0]


@pytest.mark.parametrize("seed", range(3))
def test_equals_a_slow_loop(seed: int) -> None:
    rewards_NT, groups_N, norms_NT, mask_NT = random_rollout(seed)
    returns: dict[int, list[tuple[float, float]]] = {}
    for n, mask_T in enumerate(mask_NT.tolist()):
        places = [t for t, written in enumerate(mask_T) if written]
        returns[n] = [
            (float(rewards_NT[n, places[k:]].sum()), float(norms_NT[n, places[: k + 1]].sum()))
            for k in range(len(places))
        ]
    found_NT = advantages(rewards_NT, groups_N, norms_NT, mask_NT)
    assert not found_NT[~mask_NT].any()
    for n, of_row in returns.items():
        for k, (value, _) in enumerate(of_row):
            there = [returns[i][k] for i in range(9) if groups_N[i] == groups_N[n] and len(returns[i]) > k]
            weights = sum(weight for _, weight in there)
            baseline = sum(r * weight for r, weight in there) / (weights + 1e-8) if len(there) > 1 else 0.0
            assert float(found_NT[n][mask_NT[n]][k]) == pytest.approx(value - baseline, abs=1e-12)


def test_equal_returns_give_exactly_zero_and_an_unshared_position_keeps_its_return() -> None:
    rewards_NT = double([[0.0, 0.3, 0.0], [0.0, 0.0, 0.3], [0.7, 0.0, 0.0]])
    mask_NT = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    found = advantages(rewards_NT, torch.tensor([0, 0, 1]), torch.full((3, 3), 0.1), mask_NT)
    assert found.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.3], [0.7, 0.0, 0.0]]
    certain = advantages(rewards_NT * double([[1], [2], [1]]), torch.tensor([0, 0, 1]), torch.zeros(3, 3), mask_NT)
    assert certain.isfinite().all()  # tokens without a gradient


def test_empty_rollouts_are_accepted() -> None:
    none = torch.zeros(0, 0)
    assert advantages(none, torch.zeros(0, dtype=torch.long), none, none.bool()).shape == (0, 0)
    blank = torch.zeros(2, 0)
    assert advantages(blank, torch.tensor([0, 0]), blank, blank.bool()).shape == (2, 0)


def test_norms_equal_the_gradient_by_the_logits() -> None:
    logits_TV = torch.randn(5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tokens_T = torch.tensor([3, 0, 10, 3, 7])
    logprobs_T = logits_TV.log_softmax(1).gather(1, tokens_T[:, None])[:, 0]
    (gradient_TV,) = torch.autograd.grad(logprobs_T.sum(), logits_TV, retain_graph=True)
    sharpened_T = (2 * logits_TV).log_softmax(1).gather(1, tokens_T[:, None])[:, 0]
    found = gradient_norms(logprobs_T.detach(), sharpened_T.detach())
    assert torch.allclose(found, gradient_TV.square().sum(1), rtol=1e-12)
    assert float(gradient_norms(torch.zeros(1), torch.full((1,), 1e-7))) == 0.0  # never negative
