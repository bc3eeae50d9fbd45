"""The torch engine with pictures: tokens and log-probabilities of transformers, in every order and company."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rlcore.types import Completion, Prompt, Sampling, TokenIds  # noqa: E402
from torch_models import engine, needs_equal_rows  # noqa: E402
from vision_models import FAMILIES, processor_of, vision_language_model  # noqa: E402
from vision_prompts import (  # noqa: E402
    PAD,
    VIDEO,
    assert_equals_transformers,
    drawn,
    extended,
    generated,
    prompt_of,
    vision_engine,
)

ALL_FAMILIES = pytest.mark.parametrize("family", FAMILIES)
SAMPLED = Sampling(max_new_tokens=12, suppressed_token_ids=(PAD, VIDEO))
GREEDY = replace(SAMPLED, temperature=0.0)


def words(count: int, seed: int = 0) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(PAD) for _ in range(count)]


def run(family: str, model: Any, requests: Sequence[tuple[Prompt, Sampling]], **options: Any) -> list[Completion]:
    async def main() -> list[Completion]:
        sampler = vision_engine(family, model, **options)
        calls = [sampler.generate(prompt, sampling, session=f"s{i}") for i, (prompt, sampling) in enumerate(requests)]
        completions = await asyncio.gather(*calls)
        await sampler.close()
        return list(completions)

    return asyncio.run(main())


def prompts(family: str) -> list[Prompt]:
    """Text alone, one picture, several of different sizes, and pictures at both ends."""
    small, wide, tall = drawn(family, 2, 2, 1), drawn(family, 5, 3, 2), drawn(family, 1, 6, 3)
    return [
        prompt_of(family, words(9)),
        prompt_of(family, words(5), small, words(4, 1)),
        prompt_of(family, words(3), wide, words(2), tall, small, words(6, 2)),
        prompt_of(family, tall, words(7), wide),
        prompt_of(family, words(20, 4), wide, wide, words(2)),
    ]


@ALL_FAMILIES
@pytest.mark.parametrize("fused", [True, False])
def test_greedy_tokens_with_images_equal_transformers(
    family: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fused:
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    model = vision_language_model(family)
    asked = prompts(family)
    for prompt, completion in zip(asked, run(family, model, [(p, GREEDY) for p in asked]), strict=True):
        assert_equals_transformers(family, model, prompt, completion)
        assert list(completion.token_ids) == generated(family, model, prompt, GREEDY)


@ALL_FAMILIES
def test_equal_tokens_with_different_images_differ(family: str) -> None:
    model = vision_language_model(family)
    one, other = (prompt_of(family, words(4), drawn(family, 3, 3, seed), words(3)) for seed in (1, 2))
    assert one.token_ids == other.token_ids
    found = run(family, model, [(one, GREEDY), (other, GREEDY)])
    assert found[0].logprobs != found[1].logprobs
    for prompt, completion in zip((one, other), found, strict=True):
        assert_equals_transformers(family, model, prompt, completion)


@ALL_FAMILIES
def test_siblings_of_a_prompt_with_images_equal_transformers(family: str) -> None:
    model = vision_language_model(family)
    prompt, text = prompts(family)[2], prompts(family)[0]
    requests = [(p, replace(SAMPLED, seed=seed)) for seed in range(5) for p in (prompt, text)]
    completions = run(family, model, requests, slots=8)
    assert len({completion.token_ids for completion in completions}) > 8
    for (asked, _), completion in zip(requests, completions, strict=True):
        assert_equals_transformers(family, model, asked, completion)


@ALL_FAMILIES
@pytest.mark.parametrize("before", [250, 255])
def test_chunks_may_split_the_tokens_of_an_image(family: str, before: int) -> None:
    model = vision_language_model(family)
    prompt = prompt_of(family, words(before), drawn(family, 4, 3, 1), words(250, 1), drawn(family, 3, 5, 2), words(3))
    short = prompt_of(family, words(before), drawn(family, 4, 3, 1))
    asked = [prompt, short, prompts(family)[0]]
    for one, completion in zip(asked, run(family, model, [(p, GREEDY) for p in asked]), strict=True):
        assert_equals_transformers(family, model, one, completion)


async def converse(sampler: Any, family: str, prompt: Prompt, seed: int, delay: float = 0.0) -> list[Any]:
    """Three turns with a picture after the first, and text after the second, as pairs of prompt and completion."""
    generator = random.Random(seed)
    turns = []
    answers = [[words(2, seed), drawn(family, 2, 3, seed % 3), words(3, seed)], [words(4, seed)], []]
    for turn, answer in enumerate(answers):
        await asyncio.sleep(generator.random() * delay)
        sampling = replace(SAMPLED, max_new_tokens=3 + (seed * 7 + turn * 5) % 20, seed=seed * 10 + turn)
        completion = await sampler.generate(prompt, sampling, session=f"c{seed}")
        turns.append((prompt, completion))
        prompt = extended(prompt, processor_of(family), completion.token_ids, *answer)
    await sampler.release(f"c{seed}")
    return turns


@pytest.mark.slow
@ALL_FAMILIES
def test_later_turns_with_images_equal_transformers(family: str) -> None:
    model = vision_language_model(family)

    async def main() -> list[list[Any]]:
        sampler = vision_engine(family, model, slots=8)  # 10 conversations: some are parked between turns
        asked = [prompt for prompt in prompts(family) for _ in range(2)]
        conversations = await asyncio.gather(*(converse(sampler, family, p, i) for i, p in enumerate(asked)))
        await sampler.close()
        return list(conversations)

    for turns in asyncio.run(main()):
        for prompt, completion in turns:
            assert_equals_transformers(family, model, prompt, completion)


@needs_equal_rows
@ALL_FAMILIES
def test_completions_with_images_are_independent_of_their_batch(family: str) -> None:
    model = vision_language_model(family)
    same = [prompt_of(family, words(3, n), drawn(family, 4, 4, n), words(n)) for n in range(4)]
    asked = [prompt for prompt in [*prompts(family)[::2], *same] for _ in range(2)]

    async def alone() -> list[list[Any]]:
        sampler = vision_engine(family, model)
        assert sampler.deterministic
        results = [await converse(sampler, family, prompt, index) for index, prompt in enumerate(asked)]
        await sampler.close()
        return results

    async def together(order_seed: int, slots: int) -> list[list[Any]]:
        sampler = vision_engine(family, model, slots=slots)
        order = list(range(len(asked)))
        random.Random(order_seed).shuffle(order)
        found: dict[int, list[Any]] = {}

        async def one(index: int) -> None:
            found[index] = await converse(sampler, family, asked[index], index, delay=0.02)

        await asyncio.gather(*map(one, order))
        await sampler.close()
        return [found[index] for index in range(len(asked))]

    expected = asyncio.run(alone())
    for order_seed, slots in ((1, 8), (2, 24)):
        assert asyncio.run(together(order_seed, slots)) == expected


def test_text_prompts_of_a_vision_model_need_no_processor() -> None:
    model = vision_language_model("qwen2_5_vl")
    prompt = Prompt(token_ids=TokenIds([*words(9), PAD, PAD, *words(3)]))  # without a span, these are text

    async def main() -> Completion:
        sampler = engine(model)
        completion = await sampler.generate(prompt, GREEDY, session="a")
        await sampler.close()
        return completion

    assert_equals_transformers("qwen2_5_vl", model, prompt, asyncio.run(main()))
