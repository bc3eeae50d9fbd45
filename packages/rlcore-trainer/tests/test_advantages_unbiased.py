"""What an advantage makes of the gradient, in expectation, on problems small enough to enumerate every outcome.

The expectation of ``Σ_t A_t ∇log π(token_t)`` is summed over all trajectories, or over all groups of them, each with
its probability, and compared with the gradient of the expected reward: no sampling, so no tolerance beyond rounding.

Axes: ``K`` all trajectories of the problem; ``N`` those of all groups, group after group; ``T`` tokens; ``S`` states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from rlcore_trainer.algorithms.advantages.dr_grpo import dr_grpo
from rlcore_trainer.algorithms.advantages.gae import gae
from rlcore_trainer.algorithms.advantages.grpo import grpo
from rlcore_trainer.algorithms.advantages.max_rl import max_rl
from rlcore_trainer.algorithms.advantages.opo import opo
from rlcore_trainer.algorithms.advantages.pass_at_k import pass_at_k
from rlcore_trainer.algorithms.advantages.reinforce_plus_plus import reinforce_plus_plus
from rlcore_trainer.algorithms.advantages.reinforce_plus_plus_baseline import reinforce_plus_plus_baseline
from rlcore_trainer.algorithms.advantages.remax import remax
from rlcore_trainer.algorithms.advantages.rloo import rloo
from torch import Tensor

pytestmark = pytest.mark.numeric

ACTIONS, STOP, DEPTH = 3, 2, 2
"""Three tokens, of which the last ends the trajectory; at most two of them."""


@dataclass
class Problem:
    """All trajectories of a softmax policy with a table of logits: one row for each sequence of tokens so far.

    Between the first token and the second stands one that the policy did not write, and carries a reward.
    """

    logits: Tensor
    logprobs_KT: Tensor
    mask_KT: Tensor
    rewards_KT: Tensor
    values_KT: Tensor
    """An arbitrary number for each state."""
    true_values_KT: Tensor
    """The expected reward from each state on."""

    @property
    def probabilities_K(self) -> Tensor:
        return self.logprobs_KT.sum(1).exp()

    @property
    def objective(self) -> Tensor:
        return (self.probabilities_K * self.rewards_KT.sum(1)).sum()

    def gradient(self, objective: Tensor) -> Tensor:
        return torch.autograd.grad(objective, self.logits, retain_graph=True)[0]


@pytest.fixture
def problem() -> Problem:
    random = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    paths = [(STOP,), *itertools.product(range(STOP), range(ACTIONS))]
    states = {(): 0, (0,): 1, (1,): 2}
    logits, state_values_S = normal(len(states), ACTIONS).requires_grad_(), normal(len(states))
    logprobs_SA = logits.log_softmax(1)
    mask_KT = torch.zeros(len(paths), 3, dtype=torch.bool)
    rewards_KT, values_KT = normal(len(paths), 3), normal(len(paths), 3)
    true_KT = torch.zeros(len(paths), 3, dtype=torch.float64)
    logprobs_KT = torch.zeros(len(paths), 3, dtype=torch.float64)
    first = dict(zip(range(ACTIONS), normal(ACTIONS), strict=True))
    between = dict(zip(range(ACTIONS), normal(ACTIONS), strict=True))
    for k, path in enumerate(paths):
        rewards_KT[k, 0] = first[path[0]]
        rewards_KT[k, 1] = between[path[0]]
        rewards_KT[k, 2] *= len(path) > 1
        for depth, token in enumerate(path):
            column = 2 * depth
            mask_KT[k, column] = True
            values_KT[k, column] = state_values_S[states[path[:depth]]]
            logprobs_KT[k, column] = logprobs_SA[states[path[:depth]], token]
    problem = Problem(logits, logprobs_KT, mask_KT, rewards_KT, values_KT, true_KT)
    probabilities_K = problem.probabilities_K.detach()
    for k, path in enumerate(paths):
        for depth in range(len(path)):
            here = torch.tensor([other[:depth] == path[:depth] for other in paths])
            to_go_K = rewards_KT.sum(1) if depth == 0 else rewards_KT[:, 2]
            true_KT[k, 2 * depth] = (probabilities_K * to_go_K)[here].sum() / probabilities_K[here].sum()
    return problem


def expected_by_token(problem: Problem, advantages_KT: Tensor) -> Tensor:
    """The expected gradient when each trajectory is drawn alone."""
    surrogate_K = (advantages_KT * problem.logprobs_KT).sum(1)
    return problem.gradient((problem.probabilities_K.detach() * surrogate_K).sum())


def expected_by_group(problem: Problem, size: int, estimator: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """The expected mean gradient of a group's trajectories, over all groups of this size."""
    members_QG = torch.tensor(list(itertools.product(range(len(problem.mask_KT)), repeat=size)))
    members_N = members_QG.flatten()
    groups_N = torch.arange(len(members_QG)).repeat_interleave(size)
    probabilities_Q = problem.probabilities_K.detach()[members_QG].prod(1)
    advantages_N = estimator(problem.rewards_KT.sum(1)[members_N], groups_N, problem.mask_KT.sum(1)[members_N])
    surrogate_QG = (advantages_N * problem.logprobs_KT.sum(1)[members_N]).view(members_QG.shape)
    return problem.gradient((probabilities_Q * surrogate_QG.mean(1)).sum())


def equal(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_problem_is_well_formed(problem: Problem) -> None:
    assert float(problem.probabilities_K.detach().sum()) == pytest.approx(1.0)
    assert float(problem.gradient(problem.objective).abs().min()) > 1e-3


@pytest.mark.parametrize("size", [2, 3])
def test_rloo_is_unbiased(problem: Problem, size: int) -> None:
    found = expected_by_group(problem, size, lambda r, g, lengths: rloo(r, g)[0])
    assert equal(found, problem.gradient(problem.objective))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_dr_grpo_gradient_is_scaled_by_the_group_size(problem: Problem, size: int) -> None:
    found = expected_by_group(problem, size, lambda r, g, lengths: dr_grpo(r, g)[0])
    # Alone in its group a trajectory keeps its reward: plain REINFORCE.
    share = (size - 1) / size if size > 1 else 1.0
    assert equal(found, share * problem.gradient(problem.objective))


def test_reinforce_plus_plus_baseline_before_whitening_equals_dr_grpo(problem: Problem) -> None:
    def estimator(rewards_N: Tensor, groups_N: Tensor, lengths_N: Tensor) -> Tensor:
        one_token_N = torch.ones(len(rewards_N), 1, dtype=torch.bool)
        return reinforce_plus_plus_baseline(rewards_N, groups_N, one_token_N, whiten=False)[0][:, 0]

    assert equal(expected_by_group(problem, 3, estimator), 2 / 3 * problem.gradient(problem.objective))


@pytest.mark.parametrize("size", [2, 3])
def test_pass_at_k_has_the_gradient_of_the_best_of_the_group(problem: Problem, size: int) -> None:
    found = expected_by_group(problem, size, lambda r, g, lengths: pass_at_k(r, g, normalise_by_std=False)[0])
    probabilities_Q, best_Q = problem.probabilities_K, problem.rewards_KT.sum(1)
    for _ in range(size - 1):
        probabilities_Q = (probabilities_Q[:, None] * problem.probabilities_K).flatten()
        best_Q = torch.maximum(best_Q[:, None], problem.rewards_KT.sum(1)).flatten()
    assert equal(size * found, problem.gradient((probabilities_Q * best_Q).sum()))


@pytest.mark.parametrize("size", [2, 3])
def test_max_rl_has_the_gradient_of_the_truncated_log_likelihood(problem: Problem, size: int) -> None:
    found = expected_by_group(problem, size, lambda r, g, lengths: max_rl((r > 0).double(), g)[0])
    success = (problem.probabilities_K * (problem.rewards_KT.sum(1) > 0)).sum()
    assert 0.1 < float(success.detach()) < 0.9
    series = torch.stack([(1 - success) ** k / k for k in range(1, size)]).sum()
    assert equal(found, problem.gradient(-series))


def test_grpo_with_the_standard_deviation_is_biased(problem: Problem) -> None:
    found = expected_by_group(problem, 3, lambda r, g, lengths: grpo(r, g)[0]).flatten()
    exact = problem.gradient(problem.objective).flatten()
    cosine = float(torch.cosine_similarity(found, exact, dim=0))
    assert 0.5 < cosine < 0.999


def test_grpo_with_the_standard_deviation_amplifies_easy_tasks() -> None:
    """Two answers, one right with probability p: the gradient is exact but for a factor, which depends on p."""

    def factor(right: float, size: int = 6) -> float:
        answers_QG = torch.tensor(list(itertools.product([0.0, 1.0], repeat=size)), dtype=torch.float64)
        groups_N = torch.arange(len(answers_QG)).repeat_interleave(size)
        advantages_QG = grpo(answers_QG.flatten(), groups_N)[0].view(answers_QG.shape)
        probabilities_Q = torch.where(answers_QG == 1.0, right, 1 - right).prod(1)
        # With the log-odds as parameter, ∇log π is answer − p and ∇J is p (1 − p).
        expected = (probabilities_Q * (advantages_QG * (answers_QG - right)).mean(1)).sum()
        return float(expected) / (right * (1 - right))

    assert factor(0.5) < factor(0.9) < factor(0.99)
    assert factor(0.99) > 1.2 * factor(0.5)


def test_opo_is_biased_if_length_and_reward_correlate(problem: Problem) -> None:
    share_of_dr_grpo = problem.gradient(problem.objective) / 2
    assert equal(expected_by_group(problem, 2, lambda r, g, n: opo(r, g, torch.ones_like(n))[0]), share_of_dr_grpo)
    assert not torch.allclose(
        expected_by_group(problem, 2, lambda r, g, n: opo(r, g, n)[0]), share_of_dr_grpo, rtol=0.01
    )


def test_reinforce_plus_plus_before_whitening_is_unbiased(problem: Problem) -> None:
    advantages_KT, _ = reinforce_plus_plus(problem.rewards_KT, problem.mask_KT, whiten=False)
    assert equal(expected_by_token(problem, advantages_KT), problem.gradient(problem.objective))


@pytest.mark.parametrize("baseline", [0.0, 0.7, -30.0])
def test_remax_is_unbiased_for_any_greedy_reward(problem: Problem, baseline: float) -> None:
    baselines_K = torch.full((len(problem.mask_KT),), baseline)
    advantages_KT, _ = remax(problem.rewards_KT, baselines_K, problem.mask_KT)
    assert equal(expected_by_token(problem, advantages_KT), problem.gradient(problem.objective))


def test_gae_with_lambda_1_is_unbiased_for_any_values(problem: Problem) -> None:
    arrays = (problem.rewards_KT, problem.values_KT, problem.mask_KT)
    exact = problem.gradient(problem.objective)
    assert equal(expected_by_token(problem, gae(*arrays, gae_lambda=1.0, whiten=False)[0]), exact)
    short_sighted, _ = gae(*arrays, gae_lambda=0.5, whiten=False)
    assert not torch.allclose(expected_by_token(problem, short_sighted), exact, rtol=0.01)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.5, 1.0])
def test_gae_with_true_values_is_unbiased_for_any_lambda(problem: Problem, gae_lambda: float) -> None:
    arrays = (problem.rewards_KT, problem.true_values_KT, problem.mask_KT)
    advantages_KT, _ = gae(*arrays, gae_lambda=gae_lambda, whiten=False)
    assert equal(expected_by_token(problem, advantages_KT), problem.gradient(problem.objective))


def test_true_values_give_the_smallest_advantages(problem: Problem) -> None:
    """Why a critic is trained: without bias either way, but with less to average out."""

    def mean_square(values_KT: Tensor) -> float:
        advantages_KT, _ = gae(problem.rewards_KT, values_KT, problem.mask_KT, whiten=False)
        return float((problem.probabilities_K.detach()[:, None] * advantages_KT.square()).sum())

    others = (torch.zeros_like(problem.values_KT), problem.values_KT, problem.true_values_KT + 0.01)
    assert all(mean_square(problem.true_values_KT) < mean_square(values_KT) for values_KT in others)
