from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore_trainer.batching.packing import TrainingSequence, pack, plan
from rlcore_trainer.policy.attention.packed import packed_attention_of
from rlcore_trainer.policy.forward import PackedForward
from rlcore_trainer.policy.hidden import batch_logprobs
from token_trajectories import sequence

pytestmark = pytest.mark.numeric

CPU = torch.device("cpu")


def sequences(count: int = 7, *, shortest: int = 2, longest: int = 20, seed: int = 0) -> list[TrainingSequence]:
    """Random tokens of which every second stretch was sampled, as in a conversation of several turns."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        length = rng.randint(shortest, longest)
        mask = [t > 0 and (t // 3) % 2 == 1 for t in range(length)]
        mask[-1] = length > 1
        made.append(
            sequence(
                token_ids=[rng.randrange(32) for _ in range(length)],
                loss_mask=mask,
                logprobs=[-float(t) for t in range(length)],
                advantage=rng.gauss(0, 1),
                weight=rng.random(),
            )
        )
    return made


def families(seed: int = 0, *, prompts: int = 4, longest: int = 20) -> list[TrainingSequence]:
    """Random families of one to five, in random order, with responses of one or two turns; some without a prompt."""
    rng = random.Random(seed)
    made = []
    for _ in range(prompts):
        prompt = [rng.randrange(32) for _ in range(rng.randint(1, longest))]
        for _ in range(rng.randint(1, 5)):
            length = rng.randint(1, longest)
            silent = rng.randint(1, length) if rng.random() < 0.5 else length
            made.append(
                sequence(
                    token_ids=[*prompt, *(rng.randrange(32) for _ in range(length))],
                    loss_mask=[False] * len(prompt) + [not silent <= t < silent + 3 for t in range(length)],
                    prompt_length=len(prompt) if rng.random() < 0.8 else 0,
                    weight=rng.random(),
                )
            )
    rng.shuffle(made)
    return made


def exact(model: Any) -> Any:
    """The model in float64, with norms that do not round to float32 as transformers' do."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                norm = torch.nn.RMSNorm(child.weight.shape, eps=child.variance_epsilon)
                norm.weight.data.copy_(child.weight.data)
                setattr(parent, name, norm)
    return model.double()


def packed(model: Any, rows: list[TrainingSequence], max_tokens: int) -> dict[int, torch.Tensor]:
    """Log-probabilities of each sequence's trained tokens."""
    found: dict[int, list[torch.Tensor]] = {}
    with packed_attention_of(model):
        for batch in pack(rows, max_tokens, CPU):
            logprobs, _ = batch_logprobs(model, batch)
            for i, logprob in zip(batch.sequence_M.tolist(), logprobs, strict=True):
                found.setdefault(i, []).append(logprob)
    return {i: torch.stack(values) for i, values in found.items()}


def plain(model: Any, rows: list[TrainingSequence]) -> dict[int, torch.Tensor]:
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
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_tokens", [1, 25, 60, 10_000])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
def test_shared_prompts_do_not_change_logprobs_or_gradients(
    qwen2: Callable[..., Any], seed: int, max_tokens: int, dtype: torch.dtype, tolerance: float
) -> None:
    model, rows = qwen2(tie_word_embeddings=True), families(seed)
    model = exact(model) if dtype == torch.float64 else model
    found, expected = packed(model, rows, max_tokens), plain(model, rows)
    assert found.keys() == expected.keys()
    gradients = []
    for values in (found, expected):
        total = sum((value * row_weight(i)).sum() for i, value in values.items()) / 100
        gradients.append(torch.autograd.grad(total, list(model.parameters())))
    for i in found:
        torch.testing.assert_close(found[i], expected[i], rtol=0, atol=tolerance)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("max_tokens", [25, 10_000])
def test_single_pass_gradient_equals_the_padded_one(qwen2: Callable[..., Any], max_tokens: int) -> None:
    model, rows = exact(qwen2(tie_word_embeddings=True)), families(1)
    parameters = list(model.parameters())
    found = [torch.zeros_like(parameter) for parameter in parameters]
    with packed_attention_of(model):
        for batch in pack(rows, max_tokens, CPU):

            def loss_of_chunk(
                chunk: slice,
                logprobs: torch.Tensor,
                entropy: torch.Tensor | None,
                weights: torch.Tensor = batch.weights_M,
            ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
                return (weights[chunk] * logprobs.exp()).sum(), {}

            loss, _, _ = PackedForward().loss(
                model, batch, loss_of_chunk, temperature=1.0, entropy=True, token_wise=True
            )
            gradient = torch.autograd.grad(loss, parameters)
            found = [total + one for total, one in zip(found, gradient, strict=True)]
    loss = sum((rows[i].weight * value.exp()).sum() for i, value in plain(model, rows).items())
    for one, other in zip(found, torch.autograd.grad(loss, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shared", [False, True])
def test_gradient_checkpointing_does_not_change_results(qwen2: Callable[..., Any], shared: bool) -> None:
    gradients = []
    for checkpointing in (False, True):
        model = qwen2().train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        with packed_attention_of(model):
            for batch in pack(families() if shared else sequences(), 1000, CPU):
                assert bool(batch.layout.families) == shared
                batch_logprobs(model, batch)[0].sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_sliding_window_extends_into_a_shared_prompt(qwen2: Callable[..., Any]) -> None:
    model, rows = exact(qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=0)), families()
    found, expected = packed(model, rows, 10_000), plain(model, rows)
    for i in found:
        torch.testing.assert_close(found[i], expected[i], rtol=1e-9, atol=1e-9)


def test_shared_prompt_is_fed_once() -> None:
    rows = [
        sequence(token_ids=[5, 6, 7, *response], loss_mask=[False] * 3 + [True] * len(response), prompt_length=3)
        for response in ([1, 2, 3], [4], [8, 9])
    ]
    (batch,) = pack(rows, 100, CPU)
    assert batch.token_ids_1N.tolist() == [[5, 6, 7, 1, 2, 8]]
    assert batch.position_ids_1N.tolist() == [[0, 1, 2, 3, 4, 3]]
    assert batch.before_M.tolist() == [2, 3, 4, 2, 2, 5]
    assert batch.targets_M.tolist() == [1, 2, 3, 4, 8, 9]
    assert batch.sequence_M.tolist() == [0, 0, 0, 1, 2, 2]


def test_only_equal_prompts_are_shared() -> None:
    tokens = [[5, 6, 1, 2], [5, 7, 1, 2], [5, 6, 3, 4], [5, 6, 3, 4]]
    rows = [
        sequence(token_ids=ids, loss_mask=[False, False, True, True], prompt_length=length)
        for ids, length in zip(tokens, (2, 2, 2, 0), strict=True)
    ]
    (batch,) = pack(rows, 100, CPU)
    assert [family.middle - family.start for family in batch.layout.families] == [2]
    assert sorted(batch.token_ids_1N[0].tolist()) == sorted([5, 6, 1, 3, 5, 7, 1, 5, 6, 3])


def test_prompt_can_contain_sampled_tokens(qwen2: Callable[..., Any]) -> None:
    model = exact(qwen2())
    rows = [
        sequence(
            token_ids=[3, 4, 5, 6, *end],
            loss_mask=[False, True, False, trained, False, True][: 4 + len(end)],
            prompt_length=4,
        )
        for end, trained in (([7, 8], True), ([], False), ([9, 1], False))
    ]
    found, expected = packed(model, rows, 100), plain(model, rows)
    assert [len(found[i]) for i in range(3)] == [3, 1, 2]
    for i in found:
        torch.testing.assert_close(found[i], expected[i], rtol=1e-9, atol=1e-9)


@given(st.integers(0, 1000), st.integers(1, 120))
def test_families_within_the_budget_are_not_split(seed: int, max_tokens: int) -> None:
    rows = families(seed)
    batches = pack(rows, max_tokens, CPU)
    seen: dict[int, int] = {}
    for number, batch in enumerate(batches):
        owners = torch.unique_consecutive(batch.sequence_M).tolist()
        assert (
            batch.token_ids_1N.shape[1] <= max_tokens
            or len(owners) == 1
            or (
                # siblings whose whole response is predicted by the prompt's last token add nothing
                batch.token_ids_1N.shape[1] == max(rows[i].fed for i in owners)
            )
        )
        for i in owners:
            assert i not in seen
            seen[i] = number
    assert seen.keys() == {i for i, row in enumerate(rows) if row.trained}
    for prompt in {tuple(row.token_ids[: row.prompt_length]) for row in rows if row.prompt_length}:
        members = [
            i for i, row in enumerate(rows) if row.prompt_length and tuple(row.token_ids[: row.prompt_length]) == prompt
        ]
        if len(prompt) + sum(rows[i].fed - len(prompt) for i in members) <= max_tokens:
            assert len({seen[i] for i in members}) == 1


def test_family_plan_is_deterministic() -> None:
    first, second = (pack(families(), 40, CPU) for _ in range(2))
    assert [batch.sequence_M.tolist() for batch in first] == [batch.sequence_M.tolist() for batch in second]
    assert [batch.token_ids_1N.tolist() for batch in first] == [batch.token_ids_1N.tolist() for batch in second]


def test_trained_tokens_can_have_different_advantages() -> None:
    rows = [
        sequence(token_ids=[1, 2, 3, 4], loss_mask=[False, True, False, True], advantage=[0.5, -1.5]),
        sequence(token_ids=[1, 2, 3], loss_mask=[False, True, True], advantage=2.0),
    ]
    (batch,) = pack(rows, 100, CPU)
    assert batch.advantages_M.tolist() == [0.5, -1.5, 2.0, 2.0]
    with pytest.raises(ValueError, match="3 advantages for 2 trained tokens"):
        pack([sequence(token_ids=[1, 2, 3], loss_mask=[False, True, True], advantage=[1.0, 2.0, 3.0])], 9, CPU)


def row_weight(i: int) -> float:
    return 0.5 + i


def test_sliding_window_is_respected(qwen2: Callable[..., Any]) -> None:
    model = qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=0)
    assert model.config.layer_types == ["sliding_attention"] * 2
    rows = sequences()
    found, expected = packed(model, rows, 10_000), plain(model, rows)
    assert max(row.fed for row in rows) > 8
    for i in found:
        torch.testing.assert_close(found[i], expected[i], rtol=1e-5, atol=1e-5)


def test_model_attention_is_restored(qwen2: Callable[..., Any]) -> None:
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


def test_only_sampled_tokens_are_targets(qwen2: Callable[..., Any]) -> None:
    (row,) = sequences(1, shortest=15)
    (batch,) = pack([row], 100, CPU)
    trained = [t for t in range(len(row.token_ids)) if row.loss_mask[t]]
    assert batch.before_M.tolist() == [t - 1 for t in trained]
    assert batch.targets_M.tolist() == [row.token_ids[t] for t in trained]
    assert batch.engine_logprobs_M.tolist() == [row.logprobs[t] for t in trained]


def test_only_rows_before_sampled_tokens_receive_gradient(qwen2: Callable[..., Any]) -> None:
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


def test_token_that_was_not_sampled_is_context_only(qwen2: Callable[..., Any]) -> None:
    model = qwen2()
    mask = [False, False, True, False, False, True, False]
    row = sequence(token_ids=[3, 4, 5, 6, 7, 8, 9], loss_mask=mask)
    before = packed(model, [row], 100)[0]
    after_end = sequence(token_ids=[3, 4, 5, 6, 7, 8, 1], loss_mask=mask)
    torch.testing.assert_close(packed(model, [after_end], 100)[0], before, rtol=0, atol=0)
    observation = sequence(token_ids=[3, 4, 5, 6, 2, 8, 9], loss_mask=mask)
    changed = packed(model, [observation], 100)[0]
    assert changed[0] == before[0]
    assert changed[1] != before[1]


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 120))
def test_plan_contains_every_item_once_within_the_budget(lengths: list[int], max_tokens: int) -> None:
    batches = plan(lengths, max_tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= max_tokens


def test_tokens_after_the_last_sampled_one_are_not_fed() -> None:
    row = sequence(token_ids=[3, 4, 5, 6, 7], loss_mask=[False, False, True, False, False])
    (batch,) = pack([row], 100, CPU)
    assert batch.token_ids_1N.tolist() == [[3, 4]]


def test_sequences_without_sampled_tokens_are_omitted() -> None:
    assert (
        pack(
            [
                sequence(token_ids=[], loss_mask=[]),
                sequence(token_ids=[1, 2], loss_mask=[False, False]),
            ],
            9,
            CPU,
        )
        == []
    )


def test_first_token_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="cannot be trained"):
        pack([sequence(token_ids=[1, 2], loss_mask=[True, True])], 9, CPU)
