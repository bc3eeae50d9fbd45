"""The divergence between policy and teacher over the vocabulary: a slow loop, finite differences, and TRL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_trainer.policy import logits
from rlcore_trainer.policy.logprobs import Output, with_gradient
from rlcore_trainer.policy.teacher_divergence import DivergenceOptions, divergences
from safetensors.torch import load_file
from torch import Tensor

GOLDEN = Path(__file__).parents[3] / "tests/references/golden/distillation.safetensors"
TOKENS, WIDTH, VOCABULARY = 11, 6, 37
KINDS = ("reverse-kl", "forward-kl", "jsd")


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles: four of ten columns."""
    monkeypatch.setattr(logits, "SMALLEST_COLUMNS", 10)
    monkeypatch.setattr(logits, "TILE_ELEMENTS", 10)


def tensors() -> tuple[Output, Output, Tensor, Tensor]:
    """Outputs of a policy and of a wider teacher with a padded output layer, targets and weights, in float64."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    policy = Output(normal(TOKENS, WIDTH).requires_grad_(), normal(VOCABULARY, WIDTH).requires_grad_())
    teacher = Output(normal(TOKENS, WIDTH + 2), normal(VOCABULARY + 3, WIDTH + 2))
    targets_M = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    return policy, teacher, targets_M, normal(TOKENS).abs()


def slow(kind: str, beta: float, p: Sequence[float], q: Sequence[float]) -> float:
    """The divergence of two distributions, as its definition says."""

    def kl(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * math.log(a / b) for a, b in zip(one, other, strict=True))

    if kind == "jsd":
        mixture = [beta * b + (1 - beta) * a for a, b in zip(p, q, strict=True)]
        return beta * kl(q, mixture) + (1 - beta) * kl(p, mixture)
    return kl(p, q) if kind == "reverse-kl" else kl(q, p)


@pytest.mark.parametrize("kind", KINDS)
def test_divergence_and_gradient_equal_a_slow_loop_and_finite_differences(kind: Any) -> None:
    policy, teacher, targets_M, weights_M = tensors()
    temperature, beta = 1.3, 0.3
    options = DivergenceOptions(divergence=kind, beta=beta, temperature=temperature)
    found = divergences(policy, teacher, targets_M, weights_M, options, chunk_rows=4)

    log_p_MV = (policy.hidden_MD @ policy.head_VD.T / temperature).log_softmax(1).detach()
    log_q_MV = (teacher.hidden_MD @ teacher.head_VD[:VOCABULARY].T / temperature).log_softmax(1)
    expected = [slow(kind, beta, p, q) for p, q in zip(log_p_MV.exp().tolist(), log_q_MV.exp().tolist(), strict=True)]
    assert found.divergence_M.tolist() == pytest.approx(expected, abs=1e-12)
    rows = torch.arange(TOKENS)
    assert torch.allclose(found.logprobs_M, log_p_MV[rows, targets_M])
    assert torch.allclose(found.teacher_logprobs_M, log_q_MV[rows, targets_M])
    assert torch.allclose(found.teacher_entropy_M, -(log_q_MV.exp() * log_q_MV).sum(1))

    def loss(hidden_MD: Tensor, head_VD: Tensor) -> float:
        result = divergences(Output(hidden_MD, head_VD), teacher, targets_M, weights_M, options)
        return float((weights_M * result.divergence_M).sum())

    with_gradient((weights_M * found.divergence_M).sum(), *policy, found.gradient).backward()
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        steps = [1e-6 * torch.randn(leaf.shape, generator=generator, dtype=torch.float64) for leaf in policy]
        ahead, behind = (
            [leaf.detach() + sign * step for leaf, step in zip(policy, steps, strict=True)] for sign in (1, -1)
        )
        slope = sum(
            float((leaf.grad * step).sum()) for leaf, step in zip(policy, steps, strict=True) if leaf.grad is not None
        )
        assert (loss(*ahead) - loss(*behind)) / 2 == pytest.approx(slope, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_distributions_that_hardly_overlap_give_finite_numbers_in_float32(kind: Any) -> None:
    hidden_MD = torch.tensor([[400.0], [-400.0], [0.0]]).requires_grad_()
    head_VD = torch.tensor([[1.0], [-1.0]]).requires_grad_()
    teacher = Output(-hidden_MD.detach(), head_VD.detach())
    options = DivergenceOptions(divergence=kind)
    found = divergences(Output(hidden_MD, head_VD), teacher, torch.tensor([0, 1, 0]), torch.ones(3), options)
    expected = 2 * math.log(2) / 2 if kind == "jsd" else 800.0
    assert found.divergence_M.tolist() == pytest.approx([expected, expected, 0.0])
    assert all(bool(gradient.isfinite().all()) for gradient in found.gradient.result() if gradient is not None)


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the stored tensors of TRL are only in a clone of the repository")
def test_divergences_and_gradients_equal_those_of_trl() -> None:
    """`tests/references/make_golden.py` writes the file with ``GKDTrainer.generalized_jsd_loss``."""
    golden = load_file(GOLDEN)
    student_MV, teacher_MV = golden["student"], golden["teacher"]
    eye_VV = torch.eye(student_MV.shape[1], dtype=torch.float64)
    names = [name.removesuffix("/value") for name in golden if name.endswith("/value")]
    assert len(names) == 10
    for name in names:
        beta, temperature = map(float, name.split("/"))
        kind: Any = {0.0: "forward-kl", 1.0: "reverse-kl"}.get(beta, "jsd")
        options = DivergenceOptions(divergence=kind, beta=beta, temperature=temperature)
        policy = Output(student_MV.clone().requires_grad_(), eye_VV)
        rows = len(student_MV)
        weights_M = torch.full((rows,), 1.0 / rows, dtype=torch.float64)
        found = divergences(policy, Output(teacher_MV, eye_VV), torch.zeros(rows, dtype=torch.long), weights_M, options)
        gradient, _ = found.gradient.result()
        assert gradient is not None
        assert float((weights_M * found.divergence_M).sum() - golden[f"{name}/value"]) == pytest.approx(0, abs=1e-12)
        assert float((gradient - golden[f"{name}/gradient"]).abs().max()) == pytest.approx(0, abs=1e-12)
