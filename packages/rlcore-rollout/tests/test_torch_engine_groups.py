"""Groups that share a prompt: the same bits as alone, the numbers of transformers, and one copy of the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rlcore.types import Completion, Sampling  # noqa: E402
from rlcore_rollout.engines.torch import row_probe  # noqa: E402
from rlcore_rollout.engines.torch.attention import mix, scores  # noqa: E402
from rlcore_rollout.engines.torch.decoder import Rows  # noqa: E402
from rlcore_rollout.engines.torch.weights import read_weights  # noqa: E402
from torch_models import (  # noqa: E402
    VOCABULARY,
    as_prompt,
    assert_logprobs_are_the_models,
    build,
    converse,
    engine,
    generate_all,
    needs_equal_rows,
    prompts,
)

HEADS = pytest.mark.parametrize("heads", [{}, {"num_key_value_heads": 4}, {"num_attention_heads": 6}])
"""Two queries for each key head, one, and three."""


def group(size: int, prompt: tuple[int, ...], tokens: int = 12) -> list[tuple[tuple[int, ...], Sampling]]:
    return [(prompt, Sampling(max_new_tokens=tokens + index % 3, seed=index)) for index in range(size)]


def run(model: Any, requests: list[tuple[tuple[int, ...], Sampling]], slots: int = 16) -> list[Completion]:
    async def main() -> list[Completion]:
        sampler = engine(model, slots=slots)
        completions = await generate_all(sampler, requests)
        await sampler.close()
        return completions

    return asyncio.run(main())


@needs_equal_rows
@HEADS
@pytest.mark.parametrize("length", [5, 140, 300])
def test_completions_are_independent_of_the_number_of_siblings(heads: dict[str, int], length: int) -> None:
    model = build(**heads)
    prompt, other = prompts(2, seed=length, shortest=length, longest=length)
    requests = group(11, prompt)
    expected = [run(model, [request])[0] for request in requests]
    for size in (2, 3, 8, 11):
        assert run(model, requests[:size]) == expected[:size]
    beside_others = run(model, [*group(3, other[: length // 2 + 1], tokens=20), *requests, *group(9, other)], slots=24)
    assert beside_others[3:14] == expected


@pytest.mark.numeric
@HEADS
def test_group_logprobs_equal_transformers(heads: dict[str, int]) -> None:
    model = build(**heads)
    requests = [request for prompt in prompts(3, seed=1, shortest=100, longest=400) for request in group(5, prompt)]
    for (prompt, _), completion in zip(requests, run(model, requests), strict=True):
        assert_logprobs_are_the_models(model, prompt, completion)


@needs_equal_rows
def test_padded_and_split_products_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    requests = [request for prompt in prompts(3, seed=4, shortest=5, longest=90) for request in group(5, prompt)]
    expected = run(model, requests)
    monkeypatch.setattr("rlcore_rollout.engines.torch.engine.independent_rows", lambda *_: Rows(least=24, most=32))
    assert run(model, requests) == expected


@needs_equal_rows
def test_late_siblings_share_the_prompt() -> None:
    model = build()
    prompt, other = prompts(2, seed=2, shortest=200, longest=300)
    requests = group(6, prompt, tokens=60)
    expected = [run(model, [request])[0] for request in requests]

    async def main() -> list[Completion]:
        sampler = engine(model, slots=4)
        early = [asyncio.create_task(sampler.generate(as_prompt(p), s, session=f"e{s.seed}")) for p, s in requests[:2]]
        beside = asyncio.create_task(sampler.generate(as_prompt(other), Sampling(max_new_tokens=90), session="other"))
        while not sampler._scheduler.active:
            await asyncio.sleep(0.001)
        late = await generate_all(sampler, requests[2:])
        completions = [*await asyncio.gather(*early), *late]
        await beside
        await sampler.close()
        return completions

    assert asyncio.run(main()) == expected


@needs_equal_rows
@pytest.mark.parametrize("slots", [8, 12, 40])
def test_later_turns_of_siblings_equal_single_ones_and_transformers(slots: int) -> None:
    model = build("qwen3")
    asked = [prompt for prompt in prompts(3, seed=3, shortest=120, longest=280) for _ in range(9)]

    async def alone() -> list[list[Completion]]:
        sampler = engine(model, slots=slots)
        results = [await converse(sampler, f"c{index}", prompt, index) for index, prompt in enumerate(asked)]
        await sampler.close()
        return results

    async def together() -> list[list[Completion]]:
        sampler = engine(model, slots=slots)  # 27 conversations: with few slots they are parked between turns
        calls = [converse(sampler, f"c{index}", prompt, index, delay=0.02) for index, prompt in enumerate(asked)]
        results = await asyncio.gather(*calls)
        await sampler.close()
        return list(results)

    expected = asyncio.run(alone())
    assert asyncio.run(together()) == expected
    for index in (0, 10, 26):
        tokens = list(asked[index])
        for turn, completion in enumerate(expected[index]):
            assert_logprobs_are_the_models(model, tokens, completion)
            tokens += completion.token_ids
            tokens += [(index * 31 + turn * 17 + k) % VOCABULARY for k in range(1 + (index + turn) % 21)]


@pytest.mark.parametrize("change", [lambda p: p[:50], lambda p: (*p[:50], 1, 2, 3), lambda p: p])
def test_session_with_a_different_prompt_is_recomputed(
    change: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> None:
    model = build()
    prompt = prompts(1, seed=4, shortest=180, longest=180)[0]
    sampling = Sampling(max_new_tokens=9, seed=1)
    expected = run(model, [(change(prompt), sampling)])[0]

    async def main() -> Completion:
        sampler = engine(model)
        await sampler.generate(as_prompt(prompt), Sampling(max_new_tokens=30), session="a")
        again = await sampler.generate(as_prompt(change(prompt)), sampling, session="a")
        assert len(sampler._scheduler._owners) == 1
        await sampler.close()
        return again

    assert asyncio.run(main()) == expected


@pytest.mark.numeric
def test_attention_by_blocks_equals_attention_over_all_positions() -> None:
    generator = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(3, size, 16, generator=generator) * 2 for size in (5, 300, 300))
    hidden = torch.arange(300) > torch.tensor([299, 200, 170])[:, None, None]
    mask = torch.zeros(3, 1, 300).masked_fill_(hidden, -torch.inf)
    whole = torch.softmax(query @ keys.transpose(1, 2) * 0.25 + mask, dim=-1) @ values
    found = mix(scores(query * 0.25, keys.transpose(1, 2), mask).softmax(dim=-1), values)
    torch.testing.assert_close(found, whole, rtol=1e-5, atol=1e-5)


@needs_equal_rows
@pytest.mark.parametrize("touched", ["scores", "mix"])
def test_probe_detects_shared_prompts_that_depend_on_the_number_of_queries(
    monkeypatch: pytest.MonkeyPatch, touched: str
) -> None:
    weights = read_weights(build())
    assert row_probe.independent_rows(weights, 16)
    original = getattr(row_probe, touched)

    def computed_otherwise(first: Any, *others: Any) -> Any:
        found = original(first, *others)
        if first.shape[0] > 1 and first.shape[1] == 8:
            found[0, 0, 0] = torch.nextafter(found[0, 0, 0], torch.tensor(torch.inf))
        return found

    monkeypatch.setattr(row_probe, touched, computed_otherwise)
    assert not row_probe.independent_rows(weights, 16)
