"""Policy losses against the formulas of their papers, written as loops, and against finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
from rlcore_trainer.algorithms.losses.aggregation import token_weights
from rlcore_trainer.algorithms.losses.cispo import cispo
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.algorithms.losses.clip_cov import clip_cov
from rlcore_trainer.algorithms.losses.dppo_kl import dppo_kl
from rlcore_trainer.algorithms.losses.dppo_tv import dppo_tv
from rlcore_trainer.algorithms.losses.entropy import entropy_bonus
from rlcore_trainer.algorithms.losses.geo_mean import geo_mean
from rlcore_trainer.algorithms.losses.gpg import gpg
from rlcore_trainer.algorithms.losses.gspo import gspo
from rlcore_trainer.algorithms.losses.gspo_token import gspo_token
from rlcore_trainer.algorithms.losses.kl_cov import kl_cov
from rlcore_trainer.algorithms.losses.luspo import luspo
from rlcore_trainer.algorithms.losses.off_policy_mask import off_policy_mask
from rlcore_trainer.algorithms.losses.sapo import sapo
from rlcore_trainer.algorithms.losses.symmetric_tv import symmetric_tv
from rlcore_trainer.algorithms.losses.vespo import vespo
from torch import Tensor

pytestmark = pytest.mark.numeric

TOKEN_WISE = {
    "clip": clip,
    "cispo": cispo,
    "sapo": sapo,
    "gpg": gpg,
    "dppo-tv": dppo_tv,
    "dppo-kl": dppo_kl,
    "symmetric-tv": symmetric_tv,
}
OF_SEQUENCES = {"gspo": gspo, "gspo-token": gspo_token, "geo-mean": geo_mean, "luspo": luspo, "vespo": vespo}
OF_BATCHES = {"clip-cov": clip_cov, "kl-cov": kl_cov}
"""Losses that select tokens by the statistics of a micro-batch."""
ALL = TOKEN_WISE | OF_SEQUENCES | OF_BATCHES
BOUNDS: dict[str, dict[str, float]] = {
    **{name: {"clip_low": 0.2, "clip_high": 0.2} for name in ALL},
    "geo-mean": {"clip_low": 0.25, "clip_high": 0.25},
    "dppo-tv": {"clip_low": 0.03, "clip_high": 0.03},
    "dppo-kl": {"clip_low": 0.01, "clip_high": 0.01},
    "clip-cov": {"share": 0.25, "covariance_low": 0.05},
    **{name: {} for name in ("sapo", "gpg", "symmetric-tv", "kl-cov", "vespo")},
}
"""Clip ranges for the tests of derivatives."""


def double(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def call(
    name: str, logprobs: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, sequence: Tensor, **options: float
) -> tuple[Tensor, dict[str, Tensor]]:
    known = (sequence,) if name in OF_SEQUENCES else ()
    known += (torch.ones_like(weights),) if name == "vespo" else ()
    function: Callable[..., tuple[Tensor, dict[str, Tensor]]] = ALL[name]
    found = function(logprobs, old, advantages, weights, *known, **options)
    return found


def value_and_gradient(name: str, logprobs: Tensor, *arguments: Tensor, **options: float) -> tuple[float, list[float]]:
    leaf = logprobs.detach().clone().requires_grad_()
    loss, _ = call(name, leaf, *arguments, **options)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return float(loss.detach()), gradient.tolist()


def batch(seed: int = 0, lengths: Sequence[int] = (3, 1, 5, 2), spread: float = 0.5) -> tuple[Tensor, ...]:
    """Log-probs, old log-probs, advantages (one a sequence), weights, labels."""
    generator = torch.Generator().manual_seed(seed)
    tokens = sum(lengths)
    old = -3 * torch.rand(tokens, dtype=torch.float64, generator=generator) - 0.1
    logprobs = old + spread * torch.randn(tokens, dtype=torch.float64, generator=generator)
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    advantages = torch.randn(len(lengths), dtype=torch.float64, generator=generator)[sequence]
    weights = double(*token_weights(lengths, "seq-mean-token-mean"))[sequence]
    return logprobs, old, advantages, weights, sequence


# Closed forms


def test_clip_on_policy_equals_the_policy_gradient() -> None:
    logprobs = double(-1.0, -2.0, -0.1, grad=True)
    loss, metrics = clip(logprobs, logprobs.detach(), double(1.0, -2.0, 0.0), double(0.5, 0.25, 0.25))
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-0.5, 0.5, 0.0])
    assert {name: float(value) for name, value in metrics.items()} == {
        "clip/fraction": 0.0,
        "clip/low": 0.0,
        "clip/high": 0.0,
        "ratio/max": 1.0,
        "kl/old": 0.0,
    }


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
def test_clip_has_separate_lower_and_upper_bounds(ratio: float, advantage: float, loss: float, slope: float) -> None:
    logprobs = double(math.log(ratio), grad=True)
    found, metrics = clip(logprobs, double(0.0), double(advantage), double(1.0), clip_low=0.1, clip_high=0.3)
    found.backward()
    assert logprobs.grad is not None
    assert (float(found.detach()), float(logprobs.grad)) == pytest.approx((loss, slope))
    assert float(metrics["clip/fraction"]) == (slope == 0.0)
    assert float(metrics["clip/high"]) == (slope == 0.0 and advantage > 0)
    assert float(metrics["clip/low"]) == (slope == 0.0 and advantage < 0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "reached"),
    [
        (5.0, -2.0, 6.0, 0.0, True),
        (2.0, -2.0, 4.0, 4.0, False),
        (0.5, -2.0, 1.6, 0.0, False),  # below the lower bound, which costs less than the ceiling
        (5.0, 2.0, -2.4, 0.0, False),  # good tokens know no ceiling but the upper bound
    ],
)
def test_dual_clip_bounds_the_loss_of_a_bad_token(
    ratio: float, advantage: float, loss: float, slope: float, reached: bool
) -> None:
    logprobs = double(math.log(ratio), grad=True)
    found, metrics = clip(logprobs, double(0.0), double(advantage), double(1.0), dual_clip=3.0)
    found.backward()
    assert logprobs.grad is not None
    assert (float(found.detach()), float(logprobs.grad)) == pytest.approx((loss, slope))
    assert float(metrics["clip/dual"]) == reached


@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_clip_equals_a_loop_over_tokens(dual_clip: float | None) -> None:
    logprobs, old, advantages, weights, _ = batch(seed=1, lengths=(40, 30), spread=1.0)
    advantages = advantages.abs() * (torch.arange(70) % 2 * 2 - 1)
    expected = 0.0
    for log_ratio, advantage, weight in zip(
        (logprobs - old).tolist(), advantages.tolist(), weights.tolist(), strict=True
    ):
        ratio = math.exp(log_ratio)
        objective = min(ratio * advantage, min(max(ratio, 0.9), 1.28) * advantage)
        if dual_clip is not None and advantage < 0:
            objective = max(objective, dual_clip * advantage)
        expected -= weight * objective
    found, _ = clip(logprobs, old, advantages, weights, clip_low=0.1, clip_high=0.28, dual_clip=dual_clip)
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_gspo_equals_a_loop_over_sequences() -> None:
    logprobs, old, advantages, weights, sequence = batch(seed=2, spread=0.3)
    expected, clipped = 0.0, 0.0
    for label in range(4):
        chosen = [i for i, owner in enumerate(sequence.tolist()) if owner == label]
        ratio = math.exp(sum(float(logprobs[i] - old[i]) for i in chosen) / len(chosen))
        advantage = float(advantages[chosen[0]])
        bounded = min(max(ratio, 0.95), 1.05)
        expected -= min(ratio * advantage, bounded * advantage) / 4
        clipped += (bounded * advantage < ratio * advantage) / 4
    assert 0.0 < clipped < 1.0
    for loss in (gspo, gspo_token):
        found, metrics = loss(logprobs, old, advantages, weights, sequence, clip_low=0.05, clip_high=0.05)
        assert float(found) == pytest.approx(expected, rel=1e-12)
        assert float(metrics["clip/fraction"]) == pytest.approx(clipped)


def test_gspo_and_gspo_token_gradients_agree_for_constant_advantages() -> None:
    arguments = batch(seed=3)
    whole = value_and_gradient("gspo", *arguments, clip_low=0.1, clip_high=0.1)
    single = value_and_gradient("gspo-token", *arguments, clip_low=0.1, clip_high=0.1)
    assert whole[0] == pytest.approx(single[0], rel=1e-12)
    assert whole[1] == pytest.approx(single[1], rel=1e-12)
    assert any(whole[1])


def test_gspo_token_scales_gradients_by_token_advantages() -> None:
    logprobs, old = double(-1.0, -1.5), double(-1.2, -1.4)
    advantages, weights = double(1.0, -2.0), double(0.5, 0.5)
    ratio = math.exp((0.2 - 0.1) / 2)
    sequence = torch.zeros(2, dtype=torch.long)
    _, gradient = value_and_gradient(
        "gspo-token", logprobs, old, advantages, weights, sequence, clip_low=0.5, clip_high=0.5
    )
    assert gradient == pytest.approx([-0.5 * ratio, 1.0 * ratio])
    _, mixed = value_and_gradient("gspo", logprobs, old, advantages, weights, sequence, clip_low=0.5, clip_high=0.5)
    assert mixed == pytest.approx([0.25 * ratio] * 2)


def test_gspo_equals_clip_if_all_ratios_of_a_sequence_are_equal() -> None:
    _, old, advantages, weights, sequence = batch(seed=4)
    logprobs = old + double(0.3, -0.1, 0.02, -0.4)[sequence]
    of_tokens = value_and_gradient("clip", logprobs, old, advantages, weights, sequence)
    of_sequences = value_and_gradient("gspo", logprobs, old, advantages, weights, sequence, clip_low=0.2, clip_high=0.2)
    assert of_sequences[0] == pytest.approx(of_tokens[0], rel=1e-12)
    assert of_sequences[1] == pytest.approx(of_tokens[1], rel=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_geo_mean_is_the_loop_over_sequences_of_its_formula(sign: float) -> None:
    logprobs, old, advantages, weights, sequence = batch(seed=9)
    advantages = sign * advantages.abs()
    expected, removed = 0.0, 0.0
    for label in range(4):
        chosen = [i for i, owner in enumerate(sequence.tolist()) if owner == label]
        advantage, product = float(advantages[chosen[0]]), 1.0
        for i in chosen:  # the bounds of the ratio are powers of e, and the advantage's sign chooses one of them
            ratio = math.exp(float(logprobs[i] - old[i]))
            bounded = min(max(ratio, math.exp(-0.3)), math.exp(0.2))
            product *= min(ratio, bounded) if advantage > 0 else max(ratio, bounded)
            removed += (ratio > bounded if advantage > 0 else ratio < bounded) / (4 * len(chosen))
        expected -= advantage * product ** (1 / len(chosen)) / 4
    found, metrics = geo_mean(logprobs, old, advantages, weights, sequence, clip_low=0.3, clip_high=0.2)
    assert float(found) == pytest.approx(expected, rel=1e-12)
    assert 0.0 < removed < 1.0
    assert float(metrics["clip/fraction"]) == pytest.approx(removed)
    assert float(metrics["clip/high" if sign > 0 else "clip/low"]) == pytest.approx(removed)


def test_geo_mean_removes_the_gradient_of_single_tokens() -> None:
    logprobs, old = double(-1.0, -1.5, -2.0), double(-1.1, -2.5, -1.9)  # log-ratios 0.1, 1.0, -0.1
    arguments = (double(*[2.0] * 3), double(*[1 / 3] * 3), torch.zeros(3))
    value, gradient = value_and_gradient("geo-mean", logprobs, old, *arguments)
    ratio = math.exp((0.1 + 0.4 - 0.1) / 3)
    assert value == pytest.approx(-2 * ratio)
    assert gradient == pytest.approx([-2 * ratio / 3, 0.0, -2 * ratio / 3])


def test_gpg_is_the_policy_gradient_at_any_ratio() -> None:
    logprobs, old = double(-1.0, -9.0), double(-1.2, -0.1)
    value, gradient = value_and_gradient("gpg", logprobs, old, double(2.0, -1.0), double(0.25, 0.5), torch.zeros(2))
    assert value == pytest.approx(0.5 * 1.0 - 0.5 * 9.0)
    assert gradient == [-0.5, 0.5]


def test_cispo_keeps_the_gradient_of_every_token_and_bounds_its_weight() -> None:
    ratios, advantages = [8.0, 0.1, 1.5, 8.0], [1.0, 1.0, -2.0, -1.0]
    old = double(-4.0, -1.0, -2.0, -3.0)
    logprobs = (old + double(*ratios).log()).requires_grad_()
    loss, metrics = cispo(logprobs, old, double(*advantages), double(*[0.25] * 4), clip_low=0.5)
    loss.backward()
    bounded = [5.0, 0.5, 1.5, 5.0]
    expected = [-0.25 * weight * advantage for weight, advantage in zip(bounded, advantages, strict=True)]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx(expected)
    assert float(loss.detach()) == pytest.approx(
        sum(e * float(x) for e, x in zip(expected, logprobs.detach(), strict=True))
    )
    assert {name: float(metrics[name]) for name in ("clip/high", "clip/low", "clip/fraction")} == {
        "clip/high": 0.5,
        "clip/low": 0.25,
        "clip/fraction": 0.75,
    }


def test_cispo_has_no_lower_bound_by_default() -> None:
    logprobs, old = double(-9.0), double(-1.0)
    _, gradient = value_and_gradient("cispo", logprobs, old, double(1.0), double(1.0), torch.zeros(1))
    assert gradient == pytest.approx([-math.exp(-8.0)])


@pytest.mark.parametrize(("ratio", "advantage"), [(1.0, 1.0), (1.0, -1.0), (3.0, 2.0), (0.2, -0.5), (2.0, -1.0)])
def test_sapo_equals_its_formula_and_the_policy_gradient_at_ratio_one(ratio: float, advantage: float) -> None:
    steepness = 1.0 if advantage > 0 else 1.05
    gate = 1 / (1 + math.exp(-steepness * (ratio - 1)))
    logprobs = double(math.log(ratio), grad=True)
    loss, metrics = sapo(logprobs, double(0.0), double(advantage), double(1.0))
    loss.backward()
    assert logprobs.grad is not None
    assert float(loss.detach()) == pytest.approx(-4 / steepness * gate * advantage, rel=1e-12)
    assert float(logprobs.grad) == pytest.approx(-4 * gate * (1 - gate) * ratio * advantage, rel=1e-12)
    assert float(metrics["sapo/gate"]) == pytest.approx(4 * gate * (1 - gate))
    if ratio == 1.0:
        assert float(logprobs.grad) == pytest.approx(-advantage)


def test_sapo_gradient_decays_faster_with_a_steeper_gate() -> None:
    arguments = (double(1.0), double(0.0), double(1.0), double(1.0), torch.zeros(1))
    slopes = [abs(value_and_gradient("sapo", *arguments, positive_temperature=tau)[1][0]) for tau in (0.5, 1.0, 3.0)]
    assert slopes[0] > slopes[1] > slopes[2]


@pytest.mark.parametrize(
    ("old", "new", "advantage", "kept"),
    [
        (0.5, 0.66, 1.0, False),  # has risen by 0.16
        (0.5, 0.66, -1.0, True),  # against its advantage
        (0.5, 0.34, -1.0, False),
        (0.01, 0.1, 1.0, True),  # ten times as likely, but still rare
    ],
)
def test_dppo_bounds_differences_of_probabilities(old: float, new: float, advantage: float, kept: bool) -> None:
    arguments = (double(math.log(old)), double(advantage), double(1.0), torch.zeros(1))
    _, (slope,) = value_and_gradient("dppo-tv", double(math.log(new)), *arguments)
    assert slope == pytest.approx(-advantage * new / old if kept else 0.0)
    binary = old * math.log(old / new) + (1 - old) * math.log((1 - old) / (1 - new))
    for bound, moved in ((binary - 1e-6, kept and advantage * (new - old) < 0), (binary + 1e-6, True)):
        bounds = {"clip_low": bound, "clip_high": bound}
        _, (slope,) = value_and_gradient("dppo-kl", double(math.log(new)), *arguments, **bounds)
        assert (slope != 0.0) == moved


def test_symmetric_tv_equals_a_loop_over_tokens() -> None:
    logprobs, old, advantages, weights, sequence = batch(seed=2, lengths=(20, 30))
    expected, removed = 0.0, 0
    for new, before, advantage, weight in zip(*(x.tolist() for x in (logprobs, old, advantages, weights)), strict=True):
        near = abs(math.exp(new) - math.exp(before)) <= 0.1
        removed += not near
        expected += weight * (1e-3 * (new - before) ** 2 - (math.exp(new - before) * advantage if near else 0.0))
    value, gradient = value_and_gradient("symmetric-tv", logprobs, old, advantages, weights, sequence)
    assert value == pytest.approx(expected, rel=1e-12)
    assert 0 < removed < 50
    assert all(gradient)  # the penalty reaches every token


def test_covariance_losses_select_likely_tokens_with_a_high_advantage() -> None:
    logprobs, advantages = double(-0.1, -0.1, -4.0, -4.0), double(2.0, -2.0, 2.0, -2.0)
    old, weights = logprobs - double(0.1, 0.1, 0.1, -0.1), double(0.25, 0.25, 0.25, 0.25)
    rest = (old, advantages, weights, torch.zeros(4))
    plain = (-weights * advantages * (logprobs - old).exp()).tolist()
    # The covariances are 3.9, -3.9, -3.9 and 3.9.
    _, gradient = value_and_gradient("kl-cov", logprobs, *rest, share=0.5, kl_coefficient=0.4)
    assert gradient == pytest.approx([plain[0] + 0.1, plain[1], plain[2], plain[3] - 0.1])
    _, gradient = value_and_gradient("clip-cov", logprobs, *rest, share=1.0)
    assert gradient == pytest.approx([0.0, plain[1], plain[2], 0.0])
    torch.manual_seed(0)
    once = {tuple(value_and_gradient("clip-cov", logprobs, *rest)[1]).index(0.0) for _ in range(20)}
    assert once == {0, 3}  # at least one token, at random


def test_luspo_is_gspo_without_the_mean_over_tokens() -> None:
    logprobs, old, advantages, _, sequence = batch(seed=3)
    lengths = double(3, 1, 5, 2)[sequence]
    of_means = value_and_gradient("gspo", logprobs, old, advantages, 1 / (4 * lengths), sequence)
    of_sums = value_and_gradient("luspo", logprobs, old, advantages, torch.full_like(lengths, 0.25), sequence)
    assert of_sums[1] == pytest.approx([slope * n for slope, n in zip(of_means[1], lengths.tolist(), strict=True)])


def test_vespo_weighs_the_product_of_ratios_and_rollout_weights() -> None:
    old, sequence = double(-1.0, -2.0, -1.0), torch.tensor([0, 0, 1])
    logprobs = (old + double(1.5, 0.5, 1.0).log()).requires_grad_()
    factors, advantages = double(2.0, 0.8, 0.5), double(1.0, 1.0, -3.0)
    loss, metrics = vespo(logprobs, old, advantages, double(0.2, 0.2, 0.2), sequence, factors)
    loss.backward()
    good, bad = 1.5 * 0.5 * 2.0 * 0.8, 0.5
    phi = [math.exp(3) * good**2 * math.exp(-3 * good), math.exp(2) * bad**3 * math.exp(-2 * bad)]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-0.2 * phi[0], -0.2 * phi[0], 0.6 * phi[1]])
    assert float(metrics["vespo/weight"]) == pytest.approx(0.4 * phi[0] + 0.2 * phi[1])


def test_off_policy_mask_drops_bad_sequences_that_have_become_unlikely() -> None:
    sampled, sequence = double(-1.0, -1.0, -1.0, math.nan, -1.0, -1.0), torch.tensor([0, 0, 1, 1, 2, 2])
    logprobs = double(-2.0, -1.5, -2.0, -9.0, -2.0, -1.5)  # means of the fall: 0.75, 0.5 and 0.75 nats
    advantages = double(-1.0, -1.0, -1.0, -1.0, 1.0, -1.0)
    kept = off_policy_mask(logprobs, sampled, advantages, sequence, threshold=0.5)
    assert kept.tolist() == [False, False, True, True, True, False]


def test_entropy_bonus_lowers_the_loss_of_a_broad_policy() -> None:
    assert float(entropy_bonus(double(2.0, 1.0), double(0.5, 0.5))) == -1.5


# Derivatives

INSIDE_AND_OUTSIDE = [-0.9, -0.25, -0.15, -0.02, 0.03, 0.12, 0.3, 1.4]
"""Log-ratios on either side of the bounds 0.8 and 1.2, none at an edge."""


REMOVED = {
    **dict.fromkeys(("clip", "gspo", "gspo-token", "luspo"), (2, 2)),
    "geo-mean": (3, 4),
    "dppo-tv": (1, 3),
    "dppo-kl": (1, 2),
    "clip-cov": (2, 4),  # with positive advantages, no covariance is large enough
}
"""Tokens without a gradient for positive and for negative advantages."""


def differentiable_form(name: str, logprobs: Tensor, old: Tensor) -> Callable[..., Tensor]:
    """The loss with the stopped parts of its formula held at ``logprobs``, which finite differences can follow."""
    options = BOUNDS[name]
    if name == "cispo":
        weight = (logprobs - old).exp().clamp(0.8, 1.2)
        return lambda x, advantages, weights, sequence: -(weights * weight * advantages * x).sum()
    if name.startswith("dppo"):
        ratio, change = (logprobs - old).exp(), (logprobs.exp() - old.exp()).abs()
        others = (1 - old.exp()) * ((1 - old.exp()) / (1 - logprobs.exp())).log()
        far = change > 0.03 if name == "dppo-tv" else old.exp() * (old - logprobs) + others > 0.01

        def masked(x: Tensor, advantages: Tensor, weights: Tensor, sequence: Tensor) -> Tensor:
            return -(weights * ratio * advantages * x * ~(far & (advantages * (logprobs - old) > 0))).sum()

        return masked
    if name == "vespo":
        means = torch.stack([(logprobs - old)[[2 * k, 2 * k + 1]].sum() for k in range(4)]).repeat_interleave(2)

        def gated(x: Tensor, advantages: Tensor, weights: Tensor, sequence: Tensor) -> Tensor:
            power, decay = (2.0, 3.0) if advantages[0] > 0 else (3.0, 2.0)
            return -(weights * means.exp() ** power * (decay * (1 - means.exp())).exp() * advantages * x).sum()

        return gated
    if name == "clip-cov":  # the random choice of one call is part of the function
        return lambda x, *rest: (torch.manual_seed(0), call(name, x, old, *rest, **options)[0])[1]
    if name == "gspo-token":
        labels = [0, 1, 2, 3]

        def expression(x: Tensor, advantages: Tensor, weights: Tensor, sequence: Tensor) -> Tensor:
            means = torch.stack([(logprobs - old)[sequence == label].mean() for label in labels])
            ratio = means.exp()[sequence] * (x - logprobs).exp()
            clipped = ratio.clamp(0.8, 1.2)
            return -(weights * torch.minimum(ratio * advantages, clipped * advantages)).sum()

        return expression
    return lambda x, advantages, weights, sequence: call(name, x, old, advantages, weights, sequence, **options)[0]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ALL)
def test_gradients_agree_with_finite_differences_inside_and_outside_the_bounds(name: str, sign: float) -> None:
    log_ratios = double(*INSIDE_AND_OUTSIDE)
    if name in OF_SEQUENCES:
        # Two tokens a sequence whose mean is one of the log-ratios: outside below, inside twice, outside above.
        log_ratios = double(-1.2, -0.6, -0.3, 0.2, 0.4, -0.3, 0.9, 1.9)
    sequence = torch.arange(8) // 2
    old = -torch.linspace(0.5, 4.0, 8, dtype=torch.float64)
    logprobs = old + log_ratios
    advantages = sign * double(0.5, 0.5, 1.0, 1.0, 1.5, 1.5, 2.0, 2.0)
    weights = torch.linspace(0.05, 0.2, 8, dtype=torch.float64)
    torch.manual_seed(0)
    _, gradient = value_and_gradient(name, logprobs, old, advantages, weights, sequence, **BOUNDS[name])
    function = differentiable_form(name, logprobs, old)
    step, expected = 1e-6, []
    for token in range(8):
        moved = torch.zeros(8, dtype=torch.float64)
        moved[token] = step
        up = function(logprobs + moved, advantages, weights, sequence)
        down = function(logprobs - moved, advantages, weights, sequence)
        expected.append(float(up - down) / (2 * step))
    assert gradient == pytest.approx(expected, rel=1e-6, abs=1e-9)
    removed = sum(slope == 0.0 for slope in gradient)
    assert removed == REMOVED.get(name, (0, 0))[sign < 0]
    if name in ("clip", "gspo", "sapo", "geo-mean", "gpg"):
        assert torch.autograd.gradcheck(
            lambda x: function(x, advantages, weights, sequence), logprobs.clone().requires_grad_()
        )


# Invariance


@pytest.mark.parametrize("name", [name for name in ALL if name != "clip-cov"])
def test_losses_are_independent_of_sequence_order(name: str) -> None:
    lengths = (3, 1, 5, 2)
    arguments = batch(seed=5, lengths=lengths)
    order = [2, 0, 3, 1]
    places = [list(range(sum(lengths[:i]), sum(lengths[: i + 1]))) for i in range(4)]
    index = torch.tensor([token for i in order for token in places[i]])
    value, gradient = value_and_gradient(name, *arguments)
    moved_value, moved_gradient = value_and_gradient(name, *(argument[index] for argument in arguments))
    assert moved_value == pytest.approx(value, rel=1e-12)
    assert moved_gradient == pytest.approx([gradient[i] for i in index.tolist()], rel=1e-12)


@pytest.mark.parametrize("name", TOKEN_WISE | OF_SEQUENCES)
def test_micro_batch_losses_sum_to_the_batch_loss(name: str) -> None:
    arguments = batch(seed=6, lengths=(3, 1, 5, 2))
    # Where sequences have no ratio of their own, even one that is cut.
    cuts = [0, 3, 4, 9, 11] if name in OF_SEQUENCES else [0, 2, 3, 7, 11]
    value, gradient = value_and_gradient(name, *arguments)
    _, metrics = call(name, *arguments)
    parts = [tuple(argument[a:b] for argument in arguments) for a, b in pairwise(cuts)]
    found = [value_and_gradient(name, *part) for part in parts]
    assert sum(part[0] for part in found) == pytest.approx(value, rel=1e-12)
    assert [slope for part in found for slope in part[1]] == pytest.approx(gradient, rel=1e-12)
    of_parts = [call(name, *part)[1] for part in parts]
    for key, whole in metrics.items():
        numbers = [float(part[key]) for part in of_parts]
        assert (max if key.endswith("/max") else sum)(numbers) == pytest.approx(float(whole), rel=1e-12)


@pytest.mark.parametrize("name", TOKEN_WISE)
def test_token_wise_loss_of_a_token_depends_only_on_that_token(name: str) -> None:
    arguments = batch(seed=7)
    single = sum(value_and_gradient(name, *(argument[i : i + 1] for argument in arguments))[0] for i in range(11))
    assert single == pytest.approx(value_and_gradient(name, *arguments)[0], rel=1e-12)


def test_adjacent_equal_labels_form_a_sequence() -> None:
    logprobs, old, advantages, weights, sequence = batch(seed=8)
    found = value_and_gradient("gspo", logprobs, old, advantages, weights, torch.tensor([7, 3, 7, 3])[sequence])
    assert found == value_and_gradient("gspo", logprobs, old, advantages, weights, sequence)


# Extremes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("gap", [100.0, -100.0, 1000.0, -1000.0, math.inf])
@pytest.mark.parametrize("name", ALL)
def test_huge_log_ratios_give_finite_numbers(name: str, gap: float, advantage: float, dtype: torch.dtype) -> None:
    new, old = (-1.0, -1.0 - gap) if gap > 0 else (-1.0 + gap, -1.0)
    sequence = torch.zeros(2, dtype=torch.long)
    logprobs = torch.tensor([new, new], dtype=dtype)
    old_logprobs, weights = torch.tensor([old, old], dtype=dtype), torch.tensor([1.0, 0.0], dtype=dtype)
    loss, gradient = value_and_gradient(
        name, logprobs, old_logprobs, torch.full_like(weights, advantage), weights, sequence
    )
    assert math.isfinite(loss)
    assert all(map(math.isfinite, gradient))
    if advantage == 0.0 and name not in ("symmetric-tv", "kl-cov"):  # these penalise the ratio of every token
        assert loss == 0.0
        assert gradient == [0.0, 0.0]
    if name not in OF_SEQUENCES:
        assert gradient[1] == 0.0


@pytest.mark.parametrize("name", ALL)
def test_micro_batch_without_tokens_or_weight_has_zero_loss(name: str) -> None:
    arguments = batch(seed=9)
    for tokens, scale in ((0, 1.0), (11, 0.0), (1, 0.0)):
        logprobs, old, advantages, weights, sequence = (argument[:tokens] for argument in arguments)
        leaf = logprobs.clone().requires_grad_()
        loss, metrics = call(name, leaf, old, advantages, scale * weights, sequence)
        loss.backward()
        assert leaf.grad is not None
        assert float(loss.detach()) == 0.0
        assert leaf.grad.abs().sum() == 0.0
        assert {key: float(value) for key, value in metrics.items()} == dict.fromkeys(metrics, 0.0)


@pytest.mark.parametrize("name", ALL)
def test_metrics_are_scalars_without_gradient(name: str) -> None:
    logprobs, *rest = batch(seed=10)
    _, metrics = call(name, logprobs.requires_grad_(), *rest)
    assert metrics
    assert all(value.dim() == 0 and not value.requires_grad for value in metrics.values())
    assert {"ratio/max", "kl/old"} <= set(metrics)


@pytest.mark.parametrize("name", ALL)
def test_largest_ratio_considers_only_tokens_with_weight(name: str) -> None:
    logprobs, old = double(-1.0, -1.0), double(-1.0 - math.log(2.0), -9.0)
    _, metrics = call(name, logprobs, old, double(1.0, 1.0), double(0.7, 0.0), torch.tensor([0, 1]))
    assert float(metrics["ratio/max"]) == pytest.approx(2.0)
    assert float(metrics["kl/old"]) == pytest.approx(-0.7 * math.log(2.0))
