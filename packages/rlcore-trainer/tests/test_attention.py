from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore_trainer.batching.packed_layout import Family, PackedLayout
from rlcore_trainer.policy.attention import cpu
from rlcore_trainer.policy.attention.cpu import CpuKernel
from rlcore_trainer.policy.attention.packed import packed_attention
from rlcore_trainer.policy.attention.shared import Part, VarlenKernel, shared_attention

pytestmark = pytest.mark.numeric

CPU = torch.device("cpu")
MIXED = [5, (4, [3, 1, 6]), 2, (7, [2]), (1, [1, 1])]


def heads(tokens: int, *, queries: int = 4, keys: int = 2, size: int = 8) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((tokens, queries, size), (tokens, keys, size), (tokens, keys, size))
    return tuple(torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes)


def slow(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: PackedLayout) -> torch.Tensor:
    """Each token's softmax over the tokens that it may see, one after another."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    output = torch.zeros_like(query)
    rows = {}
    for stretches in layout.sequences:
        sequence = [position for stretch in stretches for position in stretch]
        for place, position in enumerate(sequence):
            rows[position] = sequence[: place + 1]
    for position, seen in rows.items():
        scores = torch.einsum("hd,khd->hk", query[position], key[seen]) * 0.3
        output[position] = torch.einsum("hk,khd->hd", scores.softmax(-1), value[seen])
    return output


def gradients(output: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * weights).sum(), inputs)


def packed(inputs: tuple[torch.Tensor, ...], layout: PackedLayout, **options: object) -> torch.Tensor:
    """Through the interface that a model calls."""
    shaped = [x.transpose(0, 1)[None] for x in inputs]
    output, _ = packed_attention(torch.nn.Module(), *shaped, None, packed=layout, scaling=0.3, **options)  # type: ignore[arg-type]
    return output[0]


@pytest.mark.parametrize("slack", [1.0, 3.0])
@pytest.mark.parametrize("keys", [1, 2, 4])
@pytest.mark.parametrize("sequences", [[6], [5, 5], [3, 9, 4], [(4, [3, 3])], MIXED])
def test_tokens_attend_to_their_prompt_and_earlier_tokens(
    sequences: list[int | tuple[int, list[int]]], keys: int, slack: float
) -> None:
    layout = PackedLayout.of(sequences, CPU, slack=slack)
    inputs = heads(layout.tokens, keys=keys)
    found, expected = packed(inputs, layout), slow(*inputs, layout)
    for one, other in zip((found, *gradients(found, inputs)), (expected, *gradients(expected, inputs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_merged_gradient_agrees_with_finite_differences() -> None:
    layout = PackedLayout.of([3, (2, [2, 1])], CPU)
    inputs = heads(layout.tokens, queries=2, keys=1, size=3)
    assert torch.autograd.gradcheck(lambda *x: packed(x, layout), inputs)


@pytest.mark.parametrize("size", [4, 16, 80, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scores", [cpu.SCORES, 60])
def test_head_sizes_and_single_precision_are_supported(
    size: int, dtype: torch.dtype, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few scores at a time, products are split and longer sequences use the flash kernel."""
    monkeypatch.setattr(cpu, "SCORES", scores)
    layout = PackedLayout.of(MIXED, CPU)
    exact = heads(layout.tokens, size=size)
    inputs = tuple(x.detach().to(dtype).requires_grad_() for x in exact)
    found, expected = packed(inputs, layout), slow(*exact, layout)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    for one, other in zip((found, *gradients(found, inputs)), (expected, *gradients(expected, exact)), strict=True):
        assert (one.double() - other).abs().max() < tolerance * max(1.0, float(other.detach().abs().max()))


def test_large_scores_do_not_overflow() -> None:
    layout = PackedLayout.of([(3, [2, 2])], CPU)
    query, key, value = heads(layout.tokens)
    inputs = (query.detach() * 300).requires_grad_(), (key.detach() * 300).requires_grad_(), value
    found, expected = packed(inputs, layout), slow(*inputs, layout)
    for one, other in zip((found, *gradients(found, inputs)), (expected, *gradients(expected, inputs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_sliding_window_reaches_into_the_prompt() -> None:
    layout = PackedLayout.of(MIXED, CPU)
    inputs = heads(layout.tokens)
    found = packed(inputs, layout, sliding_window=3)
    positions = [position for stretch in layout.sequences[1] for position in stretch]
    (gradient,) = torch.autograd.grad(found[positions[5]].sum(), inputs[2])
    assert {i for i, row in enumerate(gradient) if row.any()} == set(positions[3:6])


def test_wide_window_has_no_effect() -> None:
    layout = PackedLayout.of(MIXED, CPU)
    inputs = heads(layout.tokens)
    assert layout.longest == 10
    torch.testing.assert_close(packed(inputs, layout, sliding_window=10), packed(inputs, layout), rtol=0, atol=0)


def test_attention_without_sharing_gives_the_same_result() -> None:
    layout = PackedLayout.of(MIXED, CPU)
    inputs = heads(layout.tokens)
    found, expected = packed(inputs, layout, dropout=1e-12), slow(*inputs, layout)
    for one, other in zip((found, *gradients(found, inputs)), (expected, *gradients(expected, inputs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


class RaggedKernel(VarlenKernel):
    """A CPU's stand-in for the GPU's operations, with their arguments and shapes."""

    def forward(self, inputs: tuple[torch.Tensor, ...], part: Part, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        return CpuKernel().forward(inputs, ragged(part), scale)

    def backward(self, grad, inputs, output, logsumexp, part, scale):  # type: ignore[no-untyped-def]
        return CpuKernel().backward(grad, inputs, output, logsumexp, ragged(part), scale)


def ragged(part: Part) -> Part:
    """The part as its offsets describe it."""
    queries, keys = part.query_offsets.diff().tolist(), part.key_offsets.diff().tolist()
    assert part.query_offsets[0] == part.key_offsets[0] == 0
    return part._replace(shapes=tuple((1, q, k) for q, k in zip(queries, keys, strict=True)))


@pytest.mark.parametrize("sequences", [[3, 9, 4], MIXED])
def test_gpu_ranges_match_the_row(sequences: list[int | tuple[int, list[int]]]) -> None:
    layout = PackedLayout.of(sequences, CPU)
    inputs = heads(layout.tokens)
    found, expected = shared_attention(*inputs, layout, 0.3, kernel=RaggedKernel()), slow(*inputs, layout)
    for one, other in zip((found, *gradients(found, inputs)), (expected, *gradients(expected, inputs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_and_cpu_results_agree() -> None:
    layout = PackedLayout.of(MIXED, torch.device("cuda"))
    exact = heads(layout.tokens, size=64)
    inputs = tuple(x.detach().bfloat16().cuda().requires_grad_() for x in exact)
    found, expected = packed(inputs, layout), slow(*exact, PackedLayout.of(MIXED, CPU))
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype, device="cuda").view_as(found)
    gradients_found = torch.autograd.grad((found * weights).sum(), inputs)
    for one, other in zip((found, *gradients_found), (expected, *gradients(expected, exact)), strict=True):
        assert (one.double().cpu() - other).abs().max() < 0.1 * max(1.0, float(other.detach().abs().max()))


def test_layout_lists_its_families() -> None:
    layout = PackedLayout.of(MIXED, CPU)
    assert layout.lengths == (5, 4, 3, 1, 6, 2, 7, 2, 1, 1, 1)
    assert layout.families == (Family(5, 9, 19), Family(21, 28, 30), Family(30, 31, 33))
    assert layout.response_rows_R.tolist() == [*range(9, 19), 28, 29, 31, 32]
    assert layout.prompt_rows_K.tolist() == [*range(5, 9), *range(21, 28), 30]
    assert layout.response_offsets.tolist() == [0, 10, 12, 14]
    assert layout.prompt_offsets.tolist() == [0, 4, 11, 12]


@given(
    st.lists(
        st.integers(1, 30) | st.tuples(st.integers(1, 20), st.lists(st.integers(1, 9), min_size=1, max_size=4)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([1.0, 1.15, 3.0]),
)
def test_layout_round_trips_every_token(sequences: Sequence[int | tuple[int, list[int]]], slack: float) -> None:
    layout = PackedLayout.of(sequences, CPU, slack=slack)
    row = torch.arange(layout.tokens)
    for buckets in (layout.own, layout.whole):
        assert torch.equal(buckets.positions(buckets.places(row)), row)
        places = sum(count * length for count, length in buckets.shapes)
        assert len(buckets.places(row)) == places
        if slack == 1.0 and buckets is layout.own:
            assert places == layout.tokens
    once = layout.own.placed_once(row + 1)
    assert sorted(once[once > 0].tolist()) == (row + 1).tolist()


def test_rows_of_one_length_are_not_moved() -> None:
    assert PackedLayout.of([5, 5, 5], CPU).own.gather_P is None
    assert PackedLayout.of([(9, [5, 5, 5])], CPU).own.gather_P is None
