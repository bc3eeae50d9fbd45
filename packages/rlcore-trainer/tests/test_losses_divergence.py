"""KL estimators: their values, what they estimate and which gradient they have, exactly, by enumerating all tokens."""

from __future__ import annotations

import math

import pytest
import torch
from rlcore_trainer.algorithms.losses.divergence import ESTIMATORS, kl, next_coefficient
from torch import Tensor

pytestmark = pytest.mark.numeric

LOGITS = [1.0, -0.3, 0.2, 0.6]
REFERENCE = torch.tensor([0.2, 0.4, 0.3, 0.1], dtype=torch.float64).log()
SAMPLER = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64).log()


def double(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def policy() -> tuple[Tensor, Tensor]:
    """Logits and the log-probability of each token under them."""
    logits = double(*LOGITS, grad=True)
    return logits, logits.log_softmax(-1)


def gradient(value: Tensor, logits: Tensor) -> list[float]:
    (found,) = torch.autograd.grad(value, logits)
    return found.tolist()


def divergence() -> float:
    """KL(π, π_ref) by the definition."""
    logprobs = policy()[1].detach()
    return float((logprobs.exp() * (logprobs - REFERENCE)).sum())


def divergence_gradient(*, reverse: bool) -> list[float]:
    """Of KL(π, π_ref), or of KL(π_ref, π), by the definition."""
    logits, logprobs = policy()
    forward = (logprobs.exp() * (logprobs - REFERENCE)).sum()
    return gradient((REFERENCE.exp() * (REFERENCE - logprobs)).sum() if reverse else forward, logits)


# Values


def test_estimators_have_their_closed_forms() -> None:
    logprobs, reference, d = double(-0.5, -2.0), double(-1.0, -1.0), [0.5, -1.0]
    assert kl(logprobs, reference, "k1").tolist() == pytest.approx(d)
    assert kl(logprobs, reference, "abs").tolist() == pytest.approx([0.5, 1.0])
    assert kl(logprobs, reference, "mse").tolist() == pytest.approx([0.125, 0.5])
    assert kl(logprobs, reference, "k3").tolist() == pytest.approx([math.exp(-x) + x - 1 for x in d])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("estimator", [name for name in ESTIMATORS if not name.endswith("+")])
def test_estimators_agree_with_finite_differences(estimator: str, weighted: bool) -> None:
    logprobs, reference = double(-0.5, -2.0, -7.0, grad=True), double(-1.0, -1.0, -6.0)
    old = double(-0.7, -1.5, -7.2) if weighted else None
    assert torch.autograd.gradcheck(lambda x: kl(x, reference, estimator, old_logprobs_M=old), logprobs)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_straight_through_estimators_have_the_gradient_of_another(estimator: str) -> None:
    logprobs, reference = double(-0.5, -2.0, -7.0, grad=True), double(-1.0, -1.0, -1.0)
    found = kl(logprobs, reference, f"{estimator}+")
    assert torch.equal(found, kl(logprobs, reference, estimator))
    assert gradient(found.sum(), logprobs) == pytest.approx((logprobs - reference).tolist())


def test_k3_is_bounded_and_its_gradient_stays_finite() -> None:
    logprobs = double(-2000.0, 0.0, grad=True)
    value = kl(logprobs, double(0.0, -2000.0), "k3")
    value.sum().backward()
    assert value.tolist() == [10.0, 10.0]
    assert logprobs.grad is not None
    assert bool(logprobs.grad.isfinite().all())


def test_bound_of_k3_can_be_changed_and_disabled() -> None:
    logprobs, reference = double(-6.0), double(-1.0)
    free = math.exp(5.0) - 5.0 - 1.0
    assert kl(logprobs, reference, "k3").tolist() == [10.0]
    assert kl(logprobs, reference, "k3", clamp=50.0).tolist() == [50.0]
    assert kl(logprobs, reference, "k3", clamp=None).tolist() == pytest.approx([free])
    assert kl(logprobs, reference, "k1", clamp=1.0).tolist() == [-5.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("clamp", [10.0, None])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_huge_differences_give_finite_numbers(
    estimator: str, clamp: float | None, weighted: bool, dtype: torch.dtype
) -> None:
    logprobs = torch.tensor([-100.0, 0.0, -1000.0], dtype=dtype, requires_grad=True)
    reference = torch.tensor([0.0, -100.0, 0.0], dtype=dtype)
    old = reference if weighted else None
    value = kl(logprobs, reference, estimator, clamp=clamp, old_logprobs_M=old)
    value.sum().backward()
    assert logprobs.grad is not None
    assert bool(value.isfinite().all())
    assert bool(logprobs.grad.isfinite().all())


def test_k3_is_never_negative_and_exact_near_zero() -> None:
    difference = torch.tensor([1e-3, -1e-3, 2e-4, 0.0], dtype=torch.float32)
    found = kl(difference, torch.zeros(4), "k3")
    assert bool((found >= 0).all())
    assert found.tolist() == pytest.approx([0.5e-6, 0.5e-6, 2e-8, 0.0], rel=2e-3, abs=1e-12)


def test_unknown_estimator_is_named() -> None:
    with pytest.raises(ValueError, match="'k9'"):
        kl(double(0.0), double(0.0), "k9")


# Expectations


@pytest.mark.parametrize("estimator", ["k1", "k3", "k1+", "k3+"])
def test_k1_and_k3_are_unbiased_for_the_divergence(estimator: str) -> None:
    logprobs = policy()[1].detach()
    assert float((logprobs.exp() * kl(logprobs, REFERENCE, estimator)).sum()) == pytest.approx(divergence(), rel=1e-12)


def test_mse_is_correct_to_second_order_only() -> None:
    logits = double(*LOGITS)
    direction = double(0.3, -0.2, 0.5, -0.6)
    errors = []
    for size in (0.1, 0.05):
        near, logprobs = (logits + size * direction).log_softmax(-1), logits.log_softmax(-1)
        exact = float((logprobs.exp() * (logprobs - near)).sum())
        errors.append(abs(float((logprobs.exp() * kl(logprobs, near, "mse")).sum()) - exact) / exact)
    assert 1e-4 < errors[0] < 0.1
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.1)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_ratio_weighted_estimators_are_unbiased_off_policy(estimator: str) -> None:
    logprobs = policy()[1].detach()
    weighted = kl(logprobs, REFERENCE, estimator, old_logprobs_M=SAMPLER)
    plain = kl(logprobs, REFERENCE, estimator)
    assert float((SAMPLER.exp() * weighted).sum()) == pytest.approx(divergence(), rel=1e-12)
    assert float((SAMPLER.exp() * plain).sum()) != pytest.approx(divergence(), rel=0.05)


# Expected gradients, as the term of a loss


@pytest.mark.parametrize("estimator", ["mse", "k1+", "k3+"])
def test_mse_and_straight_through_losses_have_the_gradient_of_the_divergence(estimator: str) -> None:
    logits, logprobs = policy()
    found = gradient((logprobs.detach().exp() * kl(logprobs, REFERENCE, estimator)).sum(), logits)
    assert found == pytest.approx(divergence_gradient(reverse=False), rel=1e-12)


def test_k1_as_a_loss_has_a_zero_mean_gradient() -> None:
    logits, logprobs = policy()
    found = gradient((logprobs.detach().exp() * kl(logprobs, REFERENCE, "k1")).sum(), logits)
    assert found == pytest.approx([0.0] * 4, abs=1e-15)


def test_k3_as_a_loss_has_the_gradient_of_the_reverse_divergence() -> None:
    logits, logprobs = policy()
    found = gradient((logprobs.detach().exp() * kl(logprobs, REFERENCE, "k3")).sum(), logits)
    assert found == pytest.approx(divergence_gradient(reverse=True), rel=1e-12)
    assert found != pytest.approx(divergence_gradient(reverse=False), rel=0.05)


@pytest.mark.parametrize("sampler", [None, SAMPLER])
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_ratio_weighted_losses_have_the_gradient_of_the_divergence(estimator: str, sampler: Tensor | None) -> None:
    logits, logprobs = policy()
    old = logprobs.detach() if sampler is None else sampler
    found = gradient((old.exp() * kl(logprobs, REFERENCE, estimator, old_logprobs_M=old)).sum(), logits)
    assert found == pytest.approx(divergence_gradient(reverse=False), rel=1e-12)


# The coefficient


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (0.11, 0.5 * (1 + 0.1 * 64 / 1000)),
        (0.09, 0.5 * (1 - 0.1 * 64 / 1000)),
        (0.1, 0.5),
        (7.0, 0.5 * (1 + 0.2 * 64 / 1000)),  # one wild step changes little
        (math.inf, 0.5 * (1 + 0.2 * 64 / 1000)),
        (-1.0, 0.5 * (1 - 0.2 * 64 / 1000)),
        (math.nan, 0.5),
    ],
)
def test_coefficient_follows_the_measured_divergence(measured: float, expected: float) -> None:
    found = next_coefficient(0.5, measured, target_kl=0.1, horizon=1000, trajectories=64)
    assert found == pytest.approx(expected, rel=1e-12)


def test_coefficient_is_never_negative() -> None:
    assert next_coefficient(0.5, 0.0, target_kl=0.1, horizon=10, trajectories=1000) == 0.0


def test_coefficient_settles_at_the_target_divergence() -> None:
    """Of a policy whose divergence is inverse to the pull, as it is for a quadratic reward."""
    coefficient = 0.01
    for _ in range(400):
        coefficient = next_coefficient(coefficient, 0.02 / coefficient, target_kl=0.1, horizon=1000, trajectories=100)
    assert 0.02 / coefficient == pytest.approx(0.1, rel=1e-3)
