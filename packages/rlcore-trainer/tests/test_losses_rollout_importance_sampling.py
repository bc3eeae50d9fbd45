"""Rollout importance sampling: what it recovers, exactly, by enumerating all samples; and the critic's loss."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from rlcore_trainer.algorithms.losses.rollout_importance_sampling import effective_share
from rlcore_trainer.algorithms.losses.rollout_importance_sampling import rollout_importance_sampling as importance
from rlcore_trainer.algorithms.losses.values import value_loss
from torch import Tensor

pytestmark = pytest.mark.numeric

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
ENGINE = torch.tensor([0.1, 0.5, 0.4], dtype=torch.float64)
WORTH = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
FREE = {"low": 0.0, "high": 1e9}


def double(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def factors(gaps: Tensor, sequence: Tensor | None = None, **options: object) -> list[float]:
    """Factors of tokens whose log-probability under the policy is ``gaps`` above the engine's."""
    engine = torch.full_like(gaps, -1.0)
    sequence = torch.zeros(len(gaps)) if sequence is None else sequence
    defaults = {"mode": "truncate", "level": "token", "low": 0.5, "high": 2.0}
    return importance(engine + gaps, engine, sequence, **defaults | options)[0].tolist()  # type: ignore[arg-type]


def two_token_sequences(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs of every two-token sequence, one after another, and its label; the first token moves the second."""
    pairs = list(itertools.product(range(3), range(3)))
    logprobs = torch.stack([p for a, b in pairs for p in (first[a].log(), second[(a + b) % 3].log())])
    return logprobs, torch.arange(len(pairs)).repeat_interleave(2)


def test_unbounded_token_weights_are_unbiased() -> None:
    found, _ = importance(POLICY.log(), ENGINE.log(), torch.arange(3), mode="truncate", level="token", **FREE)
    assert float((ENGINE * found * WORTH).sum()) == pytest.approx(float((POLICY * WORTH).sum()), rel=1e-12)
    assert float((ENGINE * WORTH).sum()) != pytest.approx(float((POLICY * WORTH).sum()), rel=0.05)


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_unbounded_sequence_weights_are_unbiased(mode: str) -> None:
    policy, sequence = two_token_sequences(POLICY, POLICY.flip(0))
    engine, _ = two_token_sequences(ENGINE, ENGINE.roll(1))
    found, _ = importance(policy, engine, sequence, mode=mode, level="sequence", **FREE)
    worth = torch.linspace(-1.0, 2.0, 9, dtype=torch.float64).square()
    under_policy = float((policy.view(9, 2).sum(1).exp() * worth).sum())
    behaviour = engine.view(9, 2).sum(1).exp()
    assert float((behaviour * found.view(9, 2)[:, 0] * worth).sum()) == pytest.approx(under_policy, rel=1e-12)
    assert found.view(9, 2)[:, 0].tolist() == found.view(9, 2)[:, 1].tolist()
    of_tokens, _ = importance(policy, engine, sequence, mode=mode, level="token", **FREE)
    assert float((behaviour * of_tokens.view(9, 2)[:, 0] * worth).sum()) != pytest.approx(under_policy, rel=0.02)


@pytest.mark.parametrize("high", [1.0, 1.5, 2.0, 4.0])
def test_truncation_bias_is_at_most_the_truncated_mass(high: float) -> None:
    found, _ = importance(POLICY.log(), ENGINE.log(), torch.arange(3), mode="truncate", level="token", low=0, high=high)
    bias = float((ENGINE * found * WORTH).sum() - (POLICY * WORTH).sum())
    bound = float(WORTH.abs().max() * (POLICY - high * ENGINE).clamp(min=0.0).sum())
    assert 0.0 < abs(bias) <= bound + 1e-12


def test_masking_is_unbiased_on_the_kept_tokens() -> None:
    found, _ = importance(POLICY.log(), ENGINE.log(), torch.arange(3), mode="mask", level="token", low=0.55, high=2.0)
    kept = [0.55 <= float(p / q) <= 2.0 for p, q in zip(POLICY, ENGINE, strict=True)]
    assert kept == [False, True, False]
    assert (ENGINE * found).tolist() == pytest.approx([float(p) * k for p, k in zip(POLICY, kept, strict=True)])


@pytest.mark.parametrize(
    ("mode", "level", "expected"),
    [
        ("none", "token", [1.0, 1.0, 1.0, 1.0]),
        ("none", "sequence", [1.0, 1.0, 1.0, 1.0]),
        ("truncate", "token", [2.0, 0.25, 1.5, 1.25]),
        ("mask", "token", [0.0, 0.0, 1.5, 1.25]),
        ("truncate", "sequence", [0.75, 0.75, 1.875, 1.875]),
        ("mask", "sequence", [0.75, 0.75, 1.875, 1.875]),
    ],
)
def test_modes_and_levels_give_expected_factors(mode: str, level: str, expected: list[float]) -> None:
    gaps, sequence = double(3.0, 0.25, 1.5, 1.25).log(), torch.tensor([4, 4, 2, 2])
    assert factors(gaps, sequence, mode=mode, level=level) == pytest.approx(expected)


def test_mask_keeps_weights_at_the_bounds() -> None:
    gaps = double(0.0, 0.0)
    assert factors(gaps, mode="mask", low=1.0, high=1.0) == [1.0, 1.0]


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_sequence_is_truncated_or_masked_by_its_product(mode: str) -> None:
    gaps, sequence = double(1.5, 1.5, 0.6, 0.6, 1.0).log(), torch.tensor([0, 0, 1, 1, 2])
    expected = {"truncate": [2.0, 2.0, 0.36, 0.36, 1.0], "mask": [0.0, 0.0, 0.0, 0.0, 1.0]}[mode]
    assert factors(gaps, sequence, mode=mode, level="sequence") == pytest.approx(expected)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_token_without_an_engine_logprob_has_no_gap(level: str) -> None:
    old, engine = double(-1.0, -2.0, -0.5), double(math.nan, -2.0 - math.log(1.5), math.nan)
    found, diagnostics = importance(
        old, engine, torch.tensor([0, 0, 1]), mode="truncate", level=level, low=0.5, high=2.0
    )
    assert found.tolist() == pytest.approx([1.0 if level == "token" else 1.5, 1.5, 1.0])
    assert float(diagnostics["logprob_gap/mean"]) == pytest.approx(math.log(1.5) / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("mode", ["none", "truncate", "mask"])
def test_huge_gaps_give_finite_factors(mode: str, level: str, dtype: torch.dtype) -> None:
    old = torch.tensor([-1.0, -101.0, -1.0, -1.0], dtype=dtype)
    engine = torch.tensor([-101.0, -1.0, -1.0, -math.inf], dtype=dtype)
    found, diagnostics = importance(old, engine, torch.arange(4), mode=mode, level=level, low=0.5, high=2.0)
    cut = {"none": [1, 1, 1, 1], "truncate": [2, pytest.approx(0, abs=1e-8), 1, 2], "mask": [0, 0, 1, 0]}[mode]
    assert found.tolist() == cut
    assert all(math.isfinite(float(value)) for name, value in diagnostics.items() if not name.startswith("logprob_gap"))


def test_factors_carry_no_gradient() -> None:
    old = double(-1.0, -2.0, grad=True)
    found, diagnostics = importance(
        old, double(-1.1, -2.0), torch.zeros(2), mode="truncate", level="sequence", low=0.5, high=2.0
    )
    assert not found.requires_grad
    assert all(value.dim() == 0 and not value.requires_grad for value in diagnostics.values())


def test_diagnostics_are_means_over_tokens() -> None:
    ratios = [4.0, 0.25, 1.25, 1.0]
    gaps = double(*ratios).log()
    found, diagnostics = importance(
        gaps - 1.0, double(*[-1.0] * 4), torch.arange(4), mode="mask", level="token", low=0.5, high=2.0
    )
    assert found.tolist() == pytest.approx([0.0, 0.0, 1.25, 1.0])
    assert {name: float(value) for name, value in diagnostics.items()} == pytest.approx(
        {
            "rollout_is/factor": 2.25 / 4,
            "rollout_is/high": 0.25,
            "rollout_is/low": 0.25,
            "rollout_is/square": (1.25**2 + 1.0) / 4,
            "rollout_is/kl": sum(ratio - 1 - math.log(ratio) for ratio in ratios) / 4,
            "rollout_is/ratio/max": 4.0,
            "logprob_gap/mean": sum(abs(math.log(ratio)) for ratio in ratios) / 4,
            "logprob_gap/max": math.log(4.0),
        }
    )


@pytest.mark.parametrize(("mode", "above", "below"), [("none", 0.0, 0.0), ("truncate", 0.5, 0.0), ("mask", 0.5, 0.25)])
def test_only_changed_weights_are_counted(mode: str, above: float, below: float) -> None:
    gaps = double(4.0, 0.25, 3.0, 1.0).log()
    _, diagnostics = importance(
        gaps - 1.0, double(*[-1.0] * 4), torch.arange(4), mode=mode, level="token", low=0.5, high=2.0
    )
    assert float(diagnostics["rollout_is/high"]) == above
    assert float(diagnostics["rollout_is/low"]) == below


def test_divergence_of_engine_and_policy_is_unbiased() -> None:
    exact = float((ENGINE * (ENGINE / POLICY).log()).sum())
    _, diagnostics = importance(
        POLICY.log(), ENGINE.log(), torch.arange(3), mode="none", level="token", low=0.5, high=2.0, weights_M=ENGINE
    )
    assert float(diagnostics["rollout_is/kl"]) == pytest.approx(exact, rel=1e-12)


def test_weighted_diagnostics_of_parts_add_up() -> None:
    old, engine = -torch.rand(2, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights, sequence = torch.full((10,), 0.1, dtype=torch.float64), torch.arange(10) // 2
    arguments = (old, engine, sequence, weights)

    def diagnostics(part: slice) -> dict[str, Tensor]:
        a, b, c, d = (argument[part] for argument in arguments)
        return importance(a, b, c, mode="truncate", level="sequence", low=0.5, high=1.2, weights_M=d)[1]

    whole, parts = diagnostics(slice(None)), [diagnostics(slice(0, 4)), diagnostics(slice(4, 10))]
    for name, value in whole.items():
        combined = (max if name.endswith("/max") else sum)(float(part[name]) for part in parts)
        assert combined == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "share"), [([2.0, 2.0, 2.0], 1.0), ([0.0, 3.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 16 / 20), ([0.0], 0.0)]
)
def test_effective_share_equals_kishs_formula(weights: list[float], share: float) -> None:
    """(Σ w)² / (n Σ w²): 1 where all are alike, 1/n where one is left of n."""
    mean, square = sum(weights) / len(weights), sum(x * x for x in weights) / len(weights)
    assert effective_share(mean, square) == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("mode", ["none", "truncate", "mask"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_empty_batch_has_no_factors(mode: str, level: str) -> None:
    nothing = torch.zeros(0)
    found, diagnostics = importance(nothing, nothing, nothing, mode=mode, level=level, low=0.5, high=2.0)
    assert found.tolist() == []
    assert set(map(float, diagnostics.values())) == {0.0}


@pytest.mark.parametrize(("mode", "level"), [("clip", "token"), ("mask", "word")])
def test_unknown_mode_or_level_is_named(mode: str, level: str) -> None:
    with pytest.raises(ValueError, match=f"'{mode}' at '{level}'"):
        factors(double(0.0), mode=mode, level=level)


# The critic's loss


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (1.0, 1.2, 3.0, 2.0, -2.0),  # within reach of the old value: half the squared error
        (2.0, 1.0, 3.0, 1.125, 0.0),  # has moved far towards its return: held at 1.5
        (0.0, 1.0, 3.0, 4.5, -3.0),  # has moved far from its return: pulled back
        (4.0, 1.0, 3.0, 1.125, 0.0),  # overshot: the old side of the return is the worse one
    ],
)
def test_value_loss_is_the_maximum_of_clipped_and_unclipped(
    value: float, old: float, target: float, loss: float, slope: float
) -> None:
    values = double(value, grad=True)
    found, metrics = value_loss(values, double(old), double(target), double(1.0), clip=0.5)
    found.backward()
    assert values.grad is not None
    assert (float(found.detach()), float(values.grad)) == pytest.approx((loss, slope))
    assert float(metrics["critic/clip_fraction"]) == (slope == 0.0)
    assert float(metrics["critic/mean"]) == value


def test_value_loss_without_a_clip_is_half_the_squared_error() -> None:
    values, targets, weights = double(1.0, -2.0, 0.5, grad=True), double(3.0, 0.0, 0.5), double(0.5, 0.25, 0.25)
    found, metrics = value_loss(values, double(9.0, 9.0, 9.0), targets, weights, clip=None)
    assert float(found.detach()) == pytest.approx(0.5 * (0.5 * 4 + 0.25 * 4))
    assert float(metrics["critic/clip_fraction"]) == 0.0
    assert not any(value.requires_grad for value in metrics.values())


def test_value_loss_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    values, old, targets, weights = torch.randn(4, 20, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(
        lambda x: value_loss(x, old, targets, weights.abs(), clip=0.5)[0], values.clone().requires_grad_()
    )


def test_value_within_the_clip_is_unclipped_in_single_precision() -> None:
    values, targets = 1e-3 * torch.rand(2, 1000, generator=torch.Generator().manual_seed(0))
    found, metrics = value_loss(values, values + 0.1, targets, torch.full((1000,), 1e-3), clip=0.2)
    assert float(metrics["critic/clip_fraction"]) == 0.0
    assert float(found) == pytest.approx(float(0.5 * (values - targets).square().mean()), rel=1e-5)


def test_value_loss_without_tokens_is_zero() -> None:
    values = torch.zeros(0, requires_grad=True)
    found, metrics = value_loss(values, values.detach(), values.detach(), values.detach(), clip=0.5)
    found.backward()
    assert float(found.detach()) == 0.0
    assert set(map(float, metrics.values())) == {0.0}
