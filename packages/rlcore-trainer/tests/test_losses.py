from __future__ import annotations

import math

import pytest
import torch
from rlcore_trainer.losses import ESTIMATORS, clip, entropy_bonus, kl, token_weights


def double(*values: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def test_clip_on_policy_has_the_gradient_of_the_policy_gradient() -> None:
    logprobs = double(-1.0, -2.0, -0.1, grad=True)
    loss, metrics = clip(logprobs, logprobs.detach(), double(1.0, -2.0, 0.0), double(0.5, 0.25, 0.25))
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-0.5, 0.5, 0.0])
    assert float(metrics["clip/fraction"]) == 0.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.1, 1.0, -1.1, -1.1),
        (1.5, 1.0, -1.3, 0.0),  # risen far enough: clipped at 1 + clip_high
        (0.5, 1.0, -0.5, -0.5),  # fallen although good: never clipped
        (0.5, -1.0, 0.9, 0.0),  # fallen far enough: clipped at 1 - clip_low
        (1.5, -1.0, 1.5, 1.5),  # risen although bad: never clipped
    ],
)
def test_clip_has_bounds_of_its_own_below_and_above(ratio: float, advantage: float, loss: float, slope: float) -> None:
    logprobs = double(math.log(ratio), grad=True)
    found, metrics = clip(logprobs, double(0.0), double(advantage), double(1.0), clip_low=0.1, clip_high=0.3)
    found.backward()
    assert logprobs.grad is not None
    assert (float(found.detach()), float(logprobs.grad)) == pytest.approx((loss, slope))
    assert float(metrics["clip/fraction"]) == (slope == 0.0)


def test_clip_agrees_with_finite_differences() -> None:
    torch.manual_seed(0)
    logprobs = torch.randn(20, dtype=torch.float64, requires_grad=True)
    old, advantages = torch.randn(20, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    weights = torch.rand(20, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: clip(x, old, advantages, weights)[0], logprobs)


def test_kl_estimators_have_their_closed_forms() -> None:
    policy, reference = double(-0.5, -2.0), double(-1.0, -1.0)
    d = [0.5, -1.0]
    assert kl(policy, reference, "k1").tolist() == pytest.approx(d)
    assert kl(policy, reference, "abs").tolist() == pytest.approx([0.5, 1.0])
    assert kl(policy, reference, "mse").tolist() == pytest.approx([0.125, 0.5])
    assert kl(policy, reference, "k3").tolist() == pytest.approx([math.exp(-x) + x - 1 for x in d])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kl_estimators_agree_with_finite_differences(estimator: str) -> None:
    policy = double(-0.5, -2.0, -7.0, grad=True)
    reference = double(-1.0, -1.0, -6.0)
    assert torch.autograd.gradcheck(lambda x: kl(x, reference, estimator), policy)


def test_k3_is_bounded_and_its_gradient_stays_finite() -> None:
    policy = double(-2000.0, 0.0, grad=True)
    value = kl(policy, double(0.0, -2000.0), "k3")
    value.sum().backward()
    assert value.tolist() == [10.0, 10.0]
    assert policy.grad is not None
    assert bool(policy.grad.isfinite().all())


def test_an_unknown_estimator_is_named() -> None:
    with pytest.raises(ValueError, match="'k9'"):
        kl(double(0.0), double(0.0), "k9")


def test_k1_and_k3_are_unbiased_for_the_exact_kl() -> None:
    policy, reference = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.2, 0.5, 0.3]).double()
    exact = float((policy * (policy / reference).log()).sum())
    for estimator in ("k1", "k3"):
        expected = float((policy * kl(policy.log(), reference.log(), estimator)).sum())
        assert expected == pytest.approx(exact)


@pytest.mark.parametrize(("estimator", "pulls"), [("k1", False), ("mse", True)])
def test_expected_gradient_as_a_loss(estimator: str, pulls: bool) -> None:
    logits = torch.tensor([1.0, -0.3, 0.2], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    logprobs = logits.log_softmax(-1)
    (as_loss,) = torch.autograd.grad(
        (logprobs.detach().exp() * kl(logprobs, reference, estimator)).sum(), logits, retain_graph=True
    )
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits)
    expected = exact.tolist() if pulls else [0.0, 0.0, 0.0]
    assert as_loss.tolist() == pytest.approx(expected, abs=1e-12)


def test_entropy_bonus_lowers_the_loss_of_a_broad_policy() -> None:
    assert float(entropy_bonus(double(2.0, 1.0), double(0.5, 0.5))) == -1.5


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_weights_of_all_trained_tokens_sum_to_one(aggregation: str) -> None:
    counts = [3, 1, 0, 6]
    weights = token_weights(counts, aggregation)
    assert sum(weight * count for weight, count in zip(weights, counts, strict=True)) == pytest.approx(1.0)
    if aggregation == "token-mean":
        assert weights == [0.1] * 4
    else:
        assert weights == pytest.approx([1 / 9, 1 / 3, 0.0, 1 / 18])


def test_no_trained_token_at_all_is_no_division_by_zero() -> None:
    assert token_weights([0, 0], "token-mean") == token_weights([0, 0], "sequence-mean") == [0.0, 0.0]
