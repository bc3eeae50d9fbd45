"""The torch engine against transformers, and against itself under other company."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rlcore.types import Completion, Sampling  # noqa: E402
from torch_models import (  # noqa: E402
    FAMILIES,
    VOCABULARY,
    as_prompt,
    assert_greedy,
    assert_logprobs_are_the_models,
    build,
    converse,
    engine,
    generate_all,
    needs_equal_rows,
    prompts,
    reference_logprobs,
)


@pytest.mark.numeric
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", ["fused", "packed", "in place"])
def test_greedy_tokens_and_logprobs_equal_transformers(
    family: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if weights == "packed":  # as those of larger models
        monkeypatch.setattr("rlcore_models.products.SMALLEST", 0)
    if weights == "in place":
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    model = build(family)

    async def main() -> None:
        sampler = engine(model)
        asked = prompts(12)
        requests = [(prompt, Sampling(max_new_tokens=20, temperature=0.0)) for prompt in asked]
        completions = await generate_all(sampler, requests)
        await sampler.close()
        for prompt, completion in zip(asked, completions, strict=True):
            assert completion.finish_reason == "length"
            assert completion.policy_version == 3
            assert_logprobs_are_the_models(model, prompt, completion)
            assert_greedy(model, prompt, completion)

    asyncio.run(main())


def test_copies_of_weights_are_freed_during_a_sleep_and_made_again() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        scheduler = sampler._scheduler
        (prompt,) = prompts(1)
        found = []
        for _ in range(2):
            (completion,) = await generate_all(sampler, [(prompt, Sampling(max_new_tokens=8, temperature=0.0))])
            found.append(completion)
            assert scheduler._decoder.weights.fused
            await sampler.sleep()
            assert not scheduler._decoder.weights.fused
        await sampler.close()
        assert found[0] == found[1]

    asyncio.run(main())


def test_long_prompts_and_caches_equal_transformers() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        asked = prompts(6, shortest=240, longest=620)
        completions = await generate_all(sampler, [(p, Sampling(max_new_tokens=30)) for p in asked])
        await sampler.close()
        for prompt, completion in zip(asked, completions, strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)

    asyncio.run(main())


def test_extended_session_equals_a_new_prompt() -> None:
    model = build("qwen3")

    async def main() -> None:
        sampler = engine(model, slots=8)
        asked = prompts(20, seed=1)
        turns = await asyncio.gather(*(converse(sampler, f"c{i}", p, i) for i, p in enumerate(asked)))
        for index, prompt in enumerate(asked):
            tokens = list(prompt)
            for turn, completion in enumerate(turns[index]):
                assert_logprobs_are_the_models(model, tokens, completion)
                tokens += completion.token_ids
                tokens += [(index * 31 + turn * 17 + k) % VOCABULARY for k in range(1 + (index + turn) % 21)]
        await sampler.close()

    asyncio.run(main())


@pytest.mark.slow
@needs_equal_rows
@pytest.mark.parametrize("slots", [8, 24])
def test_completions_are_independent_of_batch_order_and_timing(slots: int) -> None:
    model = build("qwen2-untied")
    asked = [prompt for prompt in prompts(8, seed=2, longest=300) for _ in range(4)]

    async def alone() -> list[list[Completion]]:
        sampler = engine(model, slots=slots)
        results = [await converse(sampler, f"c{i}", p, i) for i, p in enumerate(asked)]
        await sampler.close()
        return results

    async def together(order_seed: int) -> list[list[Completion]]:
        sampler = engine(model, slots=slots)
        assert sampler.deterministic
        order = list(range(len(asked)))
        random.Random(order_seed).shuffle(order)
        found: dict[int, list[Completion]] = {}

        async def one(index: int, start: float) -> None:
            await asyncio.sleep(start)
            found[index] = await converse(sampler, f"c{index}", asked[index], index, delay=0.02)

        starts = random.Random(order_seed + 100)
        await asyncio.gather(*(one(index, starts.random() * 0.05) for index in order))
        await sampler.close()
        return [found[index] for index in range(len(asked))]

    expected = asyncio.run(alone())
    assert len({completion.token_ids for turns in expected for completion in turns}) > 60
    for order_seed in range(3):
        assert asyncio.run(together(order_seed)) == expected


def test_sampled_tokens_follow_the_softmax() -> None:
    model = build(vocab_size=13)
    prompt = (1, 2, 3)
    count = 1500

    async def main(sampling: Sampling) -> list[int]:
        sampler = engine(model, slots=64)
        requests = [(prompt, replace(sampling, seed=seed)) for seed in range(count)]
        tokens = [completion.token_ids[0] for completion in await generate_all(sampler, requests)]
        await sampler.close()
        return [tokens.count(token) for token in range(13)]

    logprobs = reference_logprobs(model, prompt)[-1]
    for temperature in (1.0, 1.7):
        expected = torch.softmax(logprobs / temperature, dim=-1) * count
        counts = torch.tensor(asyncio.run(main(Sampling(max_new_tokens=1, temperature=temperature))))
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert chi_square < 34.5, (temperature, counts, expected)  # 12 degrees of freedom, p = 0.0006
    best = logprobs.argsort(descending=True)
    counts = asyncio.run(main(Sampling(max_new_tokens=1, top_k=3)))
    assert {token for token, seen in enumerate(counts) if seen} == set(best[:3].tolist())
    probabilities = logprobs.exp()[best]
    kept = int((probabilities.cumsum(0) - probabilities < 0.6).sum())
    counts = asyncio.run(main(Sampling(max_new_tokens=1, top_p=0.6)))
    assert {token for token, seen in enumerate(counts) if seen} == set(best[:kept].tolist())
    share = probabilities[0] / probabilities[:kept].sum()
    assert counts[int(best[0])] / count == pytest.approx(float(share), abs=0.05)


SUPPRESSING = [
    Sampling(max_new_tokens=12, temperature=0.0),
    Sampling(max_new_tokens=12, seed=1),
    Sampling(max_new_tokens=12, temperature=1.5, seed=2),
    Sampling(max_new_tokens=12, top_k=3, seed=3),
    Sampling(max_new_tokens=12, top_p=0.4, seed=4),
]


@pytest.mark.parametrize("plainly", [False, True])
def test_suppressed_tokens_are_never_drawn(plainly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plainly:
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FAMILIES", ())
    model = build()
    prompt = prompts(1, seed=11)[0]

    async def main() -> None:
        sampler = engine(model)
        free = await generate_all(sampler, [(prompt, sampling) for sampling in SUPPRESSING], "free")
        ids = tuple(sorted({token for completion in free for token in completion.token_ids}))
        ids = (*ids[: VOCABULARY // 2], VOCABULARY + 5)
        assert len(ids) > 15
        asked = [(prompt, replace(sampling, suppressed_token_ids=ids)) for sampling in SUPPRESSING]
        *suppressed, unchanged = await generate_all(sampler, [*asked, (prompt, SUPPRESSING[1])])
        assert unchanged.token_ids == free[1].token_ids
        for completion in suppressed:
            assert not set(completion.token_ids) & set(ids)
            assert_logprobs_are_the_models(model, prompt, completion)
        unknown = replace(SUPPRESSING[1], suppressed_token_ids=(VOCABULARY,))
        assert (await sampler.generate(as_prompt(prompt), unknown, session="unknown")).token_ids == free[1].token_ids
        logprobs = reference_logprobs(model, [*prompt, *suppressed[0].token_ids])[len(prompt) - 1 : -1]
        logprobs[:, list(ids[:-1])] = float("-inf")
        assert logprobs.argmax(-1).tolist() == list(suppressed[0].token_ids)
        await sampler.close()

    asyncio.run(main())


MIXED = list(
    zip(
        prompts(4, seed=4),
        [
            Sampling(max_new_tokens=12, temperature=0.0),
            Sampling(max_new_tokens=12, temperature=1.5, seed=1),
            Sampling(max_new_tokens=12, top_k=4, seed=2),
            Sampling(max_new_tokens=12, temperature=0.7, top_p=0.5, seed=3),
        ],
        strict=True,
    )
)


def test_logprobs_are_at_temperature_one_for_any_sampling() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        for (prompt, _), completion in zip(MIXED, await generate_all(sampler, MIXED), strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)
        await sampler.close()

    asyncio.run(main())


@needs_equal_rows
def test_completions_are_independent_of_sampling_of_others() -> None:
    async def main() -> None:
        sampler = engine(build())
        for (prompt, sampling), completion in zip(MIXED, await generate_all(sampler, MIXED), strict=True):
            assert completion == await sampler.generate(as_prompt(prompt), sampling, session=f"alone{sampling.seed}")
        await sampler.close()

    asyncio.run(main())


def test_token_depends_only_on_seed_and_position() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        prompt = prompts(1, seed=5)[0]
        whole = await sampler.generate(as_prompt(prompt), Sampling(max_new_tokens=12, seed=9), session="a")
        half = await sampler.generate(as_prompt(prompt), Sampling(max_new_tokens=6, seed=9), session="b")
        rest = await sampler.generate(
            as_prompt((*prompt, *half.token_ids)), Sampling(max_new_tokens=6, seed=9), session="b"
        )
        other = await sampler.generate(as_prompt(prompt), Sampling(max_new_tokens=12, seed=10), session="c")
        assert [*half.token_ids, *rest.token_ids] == whole.token_ids
        assert other.token_ids != whole.token_ids
        await sampler.close()

    asyncio.run(main())


def test_stop_token_is_kept_and_limits_end_with_length() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, context=40)
        prompt = prompts(1, seed=6, shortest=30, longest=30)[0]
        free = await sampler.generate(as_prompt(prompt), Sampling(max_new_tokens=50, seed=1), session="a")
        assert (len(free.token_ids), free.finish_reason) == (10, "length")
        stop = free.token_ids[4]
        first = free.token_ids.index(stop)
        stopped = await sampler.generate(
            as_prompt(prompt), Sampling(max_new_tokens=50, seed=1, stop_token_ids=(stop,)), session="b"
        )
        assert stopped.token_ids == free.token_ids[: first + 1]
        assert stopped.finish_reason == "stop"
        full = await sampler.generate(as_prompt([*prompt, *free.token_ids]), Sampling(max_new_tokens=5), session="a")
        assert (full.token_ids, full.finish_reason) == ((), "length")
        await sampler.close()

    asyncio.run(main())
