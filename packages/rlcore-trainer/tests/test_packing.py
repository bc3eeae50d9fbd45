from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore_trainer.attention import PackedLayout, packed_attention_of
from rlcore_trainer.model import batch_logprobs
from rlcore_trainer.packing import Sequence, pack, plan

CPU = torch.device("cpu")


def sequences(count: int = 7, *, shortest: int = 2, longest: int = 20, seed: int = 0) -> list[Sequence]:
    """Random tokens of which every second stretch was sampled, as in a conversation of several turns."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        length = rng.randint(shortest, longest)
        mask = [t > 0 and (t // 3) % 2 == 1 for t in range(length)]
        mask[-1] = length > 1
        made.append(
            Sequence(
                token_ids=[rng.randrange(32) for _ in range(length)],
                loss_mask=mask,
                logprobs=[-float(t) for t in range(length)],
                advantage=rng.gauss(0, 1),
                weight=rng.random(),
            )
        )
    return made


def packed(model: Any, rows: list[Sequence], max_tokens: int) -> dict[int, torch.Tensor]:
    """Log-probabilities of each sequence's trained tokens."""
    found: dict[int, list[torch.Tensor]] = {}
    with packed_attention_of(model):
        for batch in pack(rows, max_tokens, CPU):
            logprobs, _ = batch_logprobs(model, batch)
            for i, logprob in zip(batch.sequence_M.tolist(), logprobs, strict=True):
                found.setdefault(i, []).append(logprob)
    return {i: torch.stack(values) for i, values in found.items()}


def plain(model: Any, rows: list[Sequence]) -> dict[int, torch.Tensor]:
    """The same from one padded batch and the model's own logits."""
    longest = max(len(row.token_ids) for row in rows)
    ids = torch.tensor([[*row.token_ids, *[0] * (longest - len(row.token_ids))] for row in rows])
    attends = torch.tensor([[1] * len(row.token_ids) + [0] * (longest - len(row.token_ids)) for row in rows])
    logprobs = model(input_ids=ids, attention_mask=attends, use_cache=False).logits.log_softmax(-1)
    return {
        i: torch.stack([logprobs[i, t - 1, row.token_ids[t]] for t, trained in enumerate(row.loss_mask) if trained])
        for i, row in enumerate(rows)
        if row.trained
    }


@pytest.mark.parametrize("max_tokens", [1, 40, 10_000])
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize("lengths", [(2, 20), (9, 9), (18, 20)])
def test_packed_equals_padded(
    family: str, max_tokens: int, lengths: tuple[int, int], request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(family)()
    rows = sequences(shortest=lengths[0], longest=lengths[1])
    found, expected = packed(model, rows, max_tokens), plain(model, rows)
    assert found.keys() == expected.keys()
    for i in found:
        torch.testing.assert_close(found[i], expected[i], rtol=1e-5, atol=1e-5)


def test_packed_gradients_equal_padded_ones(qwen2: Callable[..., Any]) -> None:
    model, rows = qwen2(tie_word_embeddings=True), sequences()
    gradients = []
    for compute in (lambda: packed(model, rows, 40), lambda: plain(model, rows)):
        total = sum((value * row_weight(i)).sum() for i, value in compute().items())
        gradients.append(torch.autograd.grad(total, list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def row_weight(i: int) -> float:
    return 0.5 + i


def test_a_sliding_window_is_kept(qwen2: Callable[..., Any]) -> None:
    model = qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=0)
    assert model.config.layer_types == ["sliding_attention"] * 2
    rows = sequences()
    found, expected = packed(model, rows, 10_000), plain(model, rows)
    assert max(row.fed for row in rows) > 8
    for i in found:
        torch.testing.assert_close(found[i], expected[i], rtol=1e-5, atol=1e-5)


def test_gradient_checkpointing_changes_nothing(qwen2: Callable[..., Any]) -> None:
    gradients = []
    for checkpointing in (False, True):
        model = qwen2().train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with packed_attention_of(model):
            for batch in pack(sequences(), 1000, CPU):
                batch_logprobs(model, batch)[0].sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_the_model_is_given_back_with_the_attention_it_had(qwen2: Callable[..., Any]) -> None:
    model = qwen2()
    before = model.config._attn_implementation
    with packed_attention_of(model):
        assert model.config._attn_implementation == "rlcore_packed"
    assert model.config._attn_implementation == before != "rlcore_packed"


def test_sequences_do_not_see_each_other(qwen2: Callable[..., Any]) -> None:
    model, rows = qwen2(), sequences()
    before = packed(model, rows, 10_000)
    others = [*sequences(6, seed=1), rows[6]]
    torch.testing.assert_close(packed(model, others, 10_000)[6], before[6], rtol=1e-5, atol=1e-5)


def test_exactly_the_sampled_tokens_are_targets(qwen2: Callable[..., Any]) -> None:
    (row,) = sequences(1, shortest=15)
    (batch,) = pack([row], 100, CPU)
    trained = [t for t in range(len(row.token_ids)) if row.loss_mask[t]]
    assert batch.before_M.tolist() == [t - 1 for t in trained]
    assert batch.targets_M.tolist() == [row.token_ids[t] for t in trained]
    assert batch.engine_logprobs_M.tolist() == [row.logprobs[t] for t in trained]


def test_gradient_reaches_exactly_the_rows_before_sampled_tokens(qwen2: Callable[..., Any]) -> None:
    model, rows = qwen2(), sequences(3)
    (batch,) = pack(rows, 1000, CPU)
    kept: list[torch.Tensor] = []

    def keep(module: Any, inputs: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        kept.append(output.last_hidden_state)

    model.base_model.register_forward_hook(keep)
    with packed_attention_of(model):
        batch_logprobs(model, batch)[0].sum().backward()
    touched = {i for i, row in enumerate(kept[0].grad[0]) if bool(row.any())}
    assert touched == set(batch.before_M.tolist())


def test_a_token_that_was_not_sampled_is_context_but_no_target(qwen2: Callable[..., Any]) -> None:
    model = qwen2()
    mask = [False, False, True, False, False, True, False]
    row = Sequence(token_ids=[3, 4, 5, 6, 7, 8, 9], loss_mask=mask)
    before = packed(model, [row], 100)[0]
    after_end = Sequence(token_ids=[3, 4, 5, 6, 7, 8, 1], loss_mask=mask)
    torch.testing.assert_close(packed(model, [after_end], 100)[0], before, rtol=0, atol=0)
    observation = Sequence(token_ids=[3, 4, 5, 6, 2, 8, 9], loss_mask=mask)
    changed = packed(model, [observation], 100)[0]
    assert changed[0] == before[0]
    assert changed[1] != before[1]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 120))
def test_a_plan_holds_everything_once_within_the_budget(lengths: list[int], max_tokens: int) -> None:
    batches = plan(lengths, max_tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= max_tokens


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.sampled_from([1.0, 1.15, 3.0]))
def test_a_layout_gives_every_token_back(lengths: list[int], slack: float) -> None:
    layout = PackedLayout.of(lengths, CPU, slack=slack)
    assert sum(count for count, _ in layout.buckets) == len(lengths)
    if layout.gather_P is not None and layout.scatter_N is not None:
        assert layout.gather_P[layout.scatter_N].tolist() == list(range(sum(lengths)))
    if slack == 1.0:
        assert sum(count * length for count, length in layout.buckets) == sum(lengths)


def test_rows_of_one_length_are_not_moved() -> None:
    assert PackedLayout.of([5, 5, 5], CPU).gather_P is None


def test_nothing_after_the_last_sampled_token_is_fed() -> None:
    row = Sequence(token_ids=[3, 4, 5, 6, 7], loss_mask=[False, False, True, False, False])
    (batch,) = pack([row], 100, CPU)
    assert batch.token_ids_1N.tolist() == [[3, 4]]


def test_sequences_without_sampled_tokens_are_left_out() -> None:
    assert (
        pack([Sequence(token_ids=[], loss_mask=[]), Sequence(token_ids=[1, 2], loss_mask=[False, False])], 9, CPU) == []
    )


def test_the_first_token_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="nothing stands before it"):
        pack([Sequence(token_ids=[1, 2], loss_mask=[True, True])], 9, CPU)
