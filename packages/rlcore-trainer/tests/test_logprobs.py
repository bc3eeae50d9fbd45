from __future__ import annotations

import pytest
import torch
from rlcore_trainer.logprobs import logprobs_and_entropy


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


@pytest.mark.parametrize("chunk_rows", [1, 4, 11, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_equal_the_naive_ones(chunk_rows: int, temperature: float) -> None:
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


def test_no_trained_row_is_an_empty_answer() -> None:
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


def test_the_head_gradient_of_many_chunks_is_not_rounded_in_between() -> None:
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


def test_logits_of_one_chunk_are_the_most_that_is_ever_held() -> None:
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
    assert largest < 64 * 128 / 4
