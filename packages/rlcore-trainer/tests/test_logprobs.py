from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_trainer.policy import logits
from rlcore_trainer.policy.logprobs import FusedLoss, fused_loss, logprobs_and_entropy

pytestmark = pytest.mark.numeric


def problem(rows: int = 11, width: int = 5, vocabulary: int = 13) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(rows, width, dtype=torch.float64, requires_grad=True)
    head = torch.randn(vocabulary, width, dtype=torch.float64, requires_grad=True)
    return hidden, head, torch.randint(vocabulary, (rows,))


def naive(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs = (hidden @ head.T / temperature).log_softmax(-1)
    return logprobs.gather(1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


@pytest.fixture(params=[1, 5, 1000])
def _columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a few of the 13 columns, and of all."""
    monkeypatch.setattr(logits, "TILE_ELEMENTS", 1)
    monkeypatch.setattr(logits, "SMALLEST_COLUMNS", request.param)


@pytest.mark.usefixtures("_columns")
@pytest.mark.parametrize("chunk_rows", [1, 4, 11, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_equal_the_naive_computation(chunk_rows: int, temperature: float) -> None:
    hidden, head, targets = problem()
    weights = torch.linspace(-1, 2, len(hidden)).double()

    def gradients(pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad((weights * pair[0] + 0.3 * weights.flip(0) * pair[1]).sum(), (hidden, head))

    found = logprobs_and_entropy(hidden, head, targets, temperature=temperature, chunk_rows=chunk_rows)
    expected = naive(hidden, head, targets, temperature)
    for one, other in zip((*found, *gradients(found)), (*expected, *gradients(expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_gradients_agree_with_finite_differences() -> None:
    hidden, head, targets = problem(rows=4)
    assert torch.autograd.gradcheck(lambda h, w: logprobs_and_entropy(h, w, targets, chunk_rows=3), (hidden, head))


def test_batch_without_trained_rows_gives_empty_results() -> None:
    hidden, head, targets = problem()
    logprobs, entropy = logprobs_and_entropy(hidden[:0], head, targets[:0])
    (logprobs.sum() + entropy.sum()).backward()
    assert logprobs.shape == entropy.shape == (0,)
    assert head.grad is not None
    assert not head.grad.any()


def test_half_precision_is_computed_in_single_precision() -> None:
    hidden, head, targets = (x.detach() for x in problem())
    logprobs, entropy = logprobs_and_entropy(hidden.bfloat16(), head.bfloat16(), targets)
    assert logprobs.dtype == entropy.dtype == torch.float32


def test_head_gradient_is_not_rounded_between_chunks() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(512, 8).bfloat16()
    head = torch.randn(16, 8).bfloat16().requires_grad_()
    targets = torch.randint(16, (512,))
    gradients = []
    for chunk_rows in (512, 4):
        (gradient,) = torch.autograd.grad(
            logprobs_and_entropy(hidden, head, targets, chunk_rows=chunk_rows)[0].sum(), head
        )
        gradients.append(gradient.float())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0.01, atol=0.01)


@settings(max_examples=50)
@given(
    rows=st.integers(1, 6),
    columns=st.integers(2, 9),
    offset=st.integers(-(2**15), 2**15),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    chunk_rows=st.integers(1, 6),
    tile=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_common_offset_of_the_logits_changes_no_bit(
    rows: int, columns: int, offset: int, temperature: float, chunk_rows: int, tile: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Multiples of 1/64: float32 represents them exactly at any of the offsets, and the head is the identity.
    hidden = torch.randint(-640, 640, (rows, columns), generator=generator).float() / 64
    targets = torch.randint(columns, (rows,), generator=generator)
    slopes = torch.randn(2, rows, generator=generator)

    def results(shift: int) -> list[torch.Tensor]:
        leaf = (hidden + shift).requires_grad_()
        head = torch.eye(columns)
        found = logprobs_and_entropy(leaf, head, targets, temperature=temperature, chunk_rows=chunk_rows)
        (gradient,) = torch.autograd.grad((slopes[0] * found[0] + slopes[1] * found[1]).sum(), leaf)
        fused = fused_loss(
            leaf,
            head,
            targets,
            lambda chunk, logprobs, entropy: ((slopes[0][chunk] * logprobs + slopes[1][chunk] * entropy).sum(), {}),
            temperature=temperature,
            chunk_rows=chunk_rows,
        )
        (of_fused,) = torch.autograd.grad(fused.loss, leaf)
        return [*found, gradient, fused.logprobs_M, fused.entropy_M, of_fused]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logits, "TILE_ELEMENTS", 1)
        patch.setattr(logits, "SMALLEST_COLUMNS", tile)
        for one, other in zip(results(0), results(offset), strict=True):
            assert torch.equal(one, other)


def objective(
    chunk: slice, logprobs: torch.Tensor, entropy: torch.Tensor | None
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Something curved of each token's log-probability and entropy."""
    weights = torch.linspace(-1, 2, 11).to(logprobs)[chunk]
    loss = (weights * logprobs.exp()).sum() + (weights * logprobs).square().sum()
    if entropy is not None:
        loss = loss + (weights.flip(0) * entropy * logprobs).sum()
    return loss, {"rows": torch.tensor(float(len(logprobs)))}


@pytest.mark.usefixtures("_columns")
@pytest.mark.parametrize("entropy", [True, False])
@pytest.mark.parametrize("chunk_rows", [1, 4, 11, None])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_single_pass_equals_the_naive_computation(temperature: float, chunk_rows: int | None, entropy: bool) -> None:
    hidden, head, targets = problem()
    found = fused_loss(
        hidden, head, targets, objective, temperature=temperature, entropy=entropy, chunk_rows=chunk_rows
    )
    logprobs, entropies = naive(hidden, head, targets, temperature)
    rows = chunk_rows or len(hidden)
    expected = torch.zeros((), dtype=torch.float64)
    for start in range(0, len(hidden), rows):
        chunk = slice(start, start + rows)
        expected = expected + objective(chunk, logprobs[chunk], entropies[chunk] if entropy else None)[0]
    torch.testing.assert_close(found.loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.logprobs_M, logprobs, rtol=1e-10, atol=1e-10)
    if found.entropy_M is not None:
        torch.testing.assert_close(found.entropy_M, entropies, rtol=1e-10, atol=1e-10)
    assert (found.entropy_M is not None) == entropy
    assert sum(float(metrics["rows"]) for metrics in found.metrics) == 11
    assert len(found.metrics) == -(-11 // rows)
    pairs = zip(
        torch.autograd.grad(3 * found.loss, (hidden, head)),
        torch.autograd.grad(3 * expected, (hidden, head)),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_single_pass_gradient_agrees_with_finite_differences() -> None:
    hidden, head, targets = problem()

    def value(h: torch.Tensor, w: torch.Tensor) -> FusedLoss:
        return fused_loss(h, w, targets, objective, chunk_rows=11)

    found = torch.autograd.grad(value(hidden, head).loss, (hidden, head))
    for which, (variable, gradient) in enumerate(zip((hidden, head), found, strict=True)):
        for index in range(variable.numel()):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [hidden.detach().clone(), head.detach().clone()]
                moved[which].view(-1)[index] += step
                ends.append(float(value(*moved).loss))
            assert abs((ends[0] - ends[1]) / 2e-6 - float(gradient.view(-1)[index])) < 1e-6


def test_single_pass_runs_backward_only_once() -> None:
    hidden, head, targets = problem()
    loss = fused_loss(hidden, head, targets, objective).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        loss.backward()


def test_tensors_without_requires_grad_get_no_gradient() -> None:
    hidden, head, targets = problem()
    fused_loss(hidden, head.detach(), targets, objective).loss.backward()
    assert hidden.grad is not None
    with torch.no_grad():
        assert not fused_loss(hidden, head, targets, objective).loss.requires_grad
    constant = fused_loss(hidden, head, targets, lambda chunk, logprobs, entropy: (logprobs.detach().sum(), {}))
    (gradient,) = torch.autograd.grad(constant.loss, head)
    assert not gradient.any()


def test_single_pass_over_no_rows_is_zero() -> None:
    hidden, head, targets = problem()
    found = fused_loss(hidden[:0], head, targets[:0], objective)
    found.loss.backward()
    assert (float(found.loss.detach()), found.metrics) == (0.0, [])
    assert head.grad is not None
    assert not head.grad.any()


def test_row_with_zero_derivative_contributes_nothing() -> None:
    hidden, head, targets = problem()

    def first_rows(
        chunk: slice, logprobs: torch.Tensor, entropy: torch.Tensor | None
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return (logprobs * (torch.arange(11) < 5)[chunk]).sum(), {}

    gradients = []
    for other in (targets, torch.cat([targets[:5], (targets[5:] + 1) % 13])):
        gradients.append(torch.autograd.grad(fused_loss(hidden, head, other, first_rows).loss, (hidden, head)))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
    assert not gradients[0][0][5:].any()
    assert gradients[0][0][:5].any(1).all()


@pytest.mark.parametrize("columns", [3, 1000])
def test_tokens_with_zero_probability_contribute_nothing(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(logits, "TILE_ELEMENTS", 1)
    monkeypatch.setattr(logits, "SMALLEST_COLUMNS", columns)
    hidden, head, targets = problem(rows=6)
    with torch.no_grad():
        hidden[:, 0] = hidden[:, 0].abs() + 0.1
        head[:4, 0] = -torch.inf
    targets = targets.clamp_min(4)
    logprobs, entropies = naive(hidden.detach(), head.detach()[4:], targets - 4, 1.0)
    for found in (
        logprobs_and_entropy(hidden, head, targets),
        fused_loss(hidden, head, targets, lambda chunk, logprobs, entropy: (logprobs.sum(), {}))[1:3],
    ):
        for one, other in zip(found, (logprobs, entropies), strict=True):
            assert one is not None
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    pair = logprobs_and_entropy(hidden, head, targets)
    (gradient,) = torch.autograd.grad((pair[0] + pair[1]).sum(), head)
    assert gradient.isfinite().all()
    assert gradient[:4].abs().max() < 1e-30


def test_large_logits_do_not_overflow() -> None:
    hidden, head, targets = problem()
    hidden = (hidden.detach() * 1000).float()
    found = logprobs_and_entropy(hidden, head.float(), targets)
    expected = naive(hidden.double(), head, targets, 1.0)
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-4, atol=1e-2)


def test_only_the_logits_of_one_chunk_are_held() -> None:
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    hidden, head, targets = problem(rows=64, vocabulary=128)
    with Watch():
        logprobs_and_entropy(hidden, head, targets, chunk_rows=4)[0].sum().backward()
        fused_loss(hidden, head, targets, lambda chunk, logprobs, _: (logprobs.sum(), {}), chunk_rows=4).loss.backward()
    assert 128 * 5 <= largest < 64 * 128 / 4
