"""The torch engine with architectures that its decoder does not compute, against slow loops of transformers."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import EngineError  # noqa: E402
from rlcore.types import Completion, Sampling  # noqa: E402
from torch_models import (  # noqa: E402
    SIZES,
    VOCABULARY,
    as_prompt,
    assert_greedy,
    assert_logprobs_are_the_models,
    build,
    converse,
    engine,
    generate_all,
    prompts,
)

pytestmark = pytest.mark.numeric

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "num_local_experts": 4}
PLAIN: dict[str, dict[str, Any]] = {
    "Mistral": {"sliding_window": 16},
    "Gemma2": {"final_logit_softcapping": 2.0, "sliding_window": 16},
    "Gemma3Text": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    "Phi3": {},
    "Qwen3Moe": {**EXPERTS, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "GptOss": {**EXPERTS, "sliding_window": 16},
    "Mamba": {"state_size": 4},
}


def plain(name: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, "head_dim": 12, "pad_token_id": 0, **PLAIN[name]})
    return transformers.AutoModelForCausalLM.from_config(config).float().eval()


@pytest.mark.parametrize("name", PLAIN)
def test_greedy_tokens_and_logprobs_equal_a_slow_loop(name: str) -> None:
    model = plain(name)

    async def main() -> None:
        sampler = engine(model)
        asked = [*prompts(2), prompts(1, seed=5)[0]]
        completions = await generate_all(sampler, [(p, Sampling(max_new_tokens=12, temperature=0.0)) for p in asked])
        await sampler.close()
        for prompt, completion in zip(asked, completions, strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)
            assert_greedy(model, prompt, completion)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["Gemma3Text", "Mamba"])
def test_later_turns_of_a_session_equal_a_slow_loop(name: str) -> None:
    model = plain(name)

    async def main() -> None:
        sampler = engine(model)
        asked = prompts(4, seed=1)
        turns = await asyncio.gather(*(converse(sampler, f"c{i}", p, i) for i, p in enumerate(asked)))
        for index, prompt in enumerate(asked):
            tokens = list(prompt)
            for turn, completion in enumerate(turns[index]):
                assert_logprobs_are_the_models(model, tokens, completion)
                tokens += completion.token_ids
                tokens += [(index * 31 + turn * 17 + k) % VOCABULARY for k in range(1 + (index + turn) % 21)]
        await sampler.close()

    asyncio.run(main())


def test_completions_of_siblings_do_not_depend_on_others() -> None:
    model = plain("Gemma3Text")
    asked = [prompt for prompt in prompts(2, seed=2) for _ in range(3)]

    async def run(together: bool) -> list[list[Completion]]:
        sampler = engine(model)
        assert sampler.deterministic
        if not together:
            return [await converse(sampler, f"c{i}", p, i) for i, p in enumerate(asked)]
        order = random.Random(1).sample(range(len(asked)), len(asked))
        found = await asyncio.gather(*(converse(sampler, f"c{i}", asked[i], i, delay=0.01) for i in order))
        await sampler.close()
        return [found[order.index(i)] for i in range(len(asked))]

    assert asyncio.run(run(True)) == asyncio.run(run(False))


def test_changed_weights_are_used_and_caches_dropped() -> None:
    model = plain("Gemma2")
    prompt = prompts(1)[0]

    async def main() -> None:
        sampler = engine(model)
        sampling = Sampling(max_new_tokens=6, temperature=0.0)
        before = await sampler.generate(as_prompt(prompt), sampling, session="a")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        assert await sampler.load_weights(LiveWeights(model, version=9)) == 9
        after = await sampler.generate(as_prompt(prompt), sampling, session="a")
        await sampler.close()
        assert after.policy_version == 9
        assert after.token_ids != before.token_ids
        assert_logprobs_are_the_models(model, prompt, after)

    asyncio.run(main())


def test_model_can_be_trained_after_sampling() -> None:
    model = plain("Gemma3Text")

    async def main() -> None:
        sampler = engine(model)
        await sampler.generate(as_prompt((1, 2, 3)), Sampling(max_new_tokens=3), session="a")
        await sampler.close()

    asyncio.run(main())
    model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_cancelled_and_repeated_calls_do_not_affect_others() -> None:
    model = plain("Phi3")

    async def main() -> None:
        sampler = engine(model)
        long = asyncio.create_task(sampler.generate(as_prompt((1, 2)), Sampling(max_new_tokens=600), session="long"))
        await asyncio.sleep(0.05)
        with pytest.raises(EngineError, match="already generating"):
            await sampler.generate(as_prompt((1, 2)), Sampling(max_new_tokens=2), session="long")
        long.cancel()
        short = await sampler.generate(as_prompt((1, 2)), Sampling(max_new_tokens=2), session="short")
        assert len(short.token_ids) == 2
        await sampler.close()

    asyncio.run(main())


def test_plain_sampling_is_reported_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    sliding = build(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    with caplog.at_level(logging.WARNING):
        engine(sliding)
    (record,) = caplog.records
    assert "sliding_attention" in record.getMessage()
