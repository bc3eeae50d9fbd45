"""The torch engine against transformers, and against itself under other company."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from rlcore.errors import EngineError, UserError  # noqa: E402
from rlcore.types import Completion, Sampling  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 700,
    "initializer_range": 0.25,
}
FAMILIES = {
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-untied": (
        "Qwen2",
        {"tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "qwen2-all-heads": ("Qwen2", {"num_key_value_heads": 4}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "llama": ("Llama", {"tie_word_embeddings": False}),
}


@dataclass
class Source:
    """A weight source over a live module or a folder."""

    module: Any = None
    folder: Path | None = None
    version: int = 3


def build(family: str = "qwen2-tied", seed: int = 0, **changes: Any) -> Any:
    kind, own = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **own, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def engine(model: Any, slots: int = 16, context: int | None = None, **options: Any) -> TorchEngine:
    return TorchEngine(
        TorchEngineConfig(slots=slots, **options), Source(model), EngineContext(max_context_tokens=context)
    )


def prompts(count: int, seed: int = 0, shortest: int = 3, longest: int = 60) -> list[tuple[int, ...]]:
    generator = random.Random(seed)
    return [
        tuple(generator.randrange(VOCABULARY) for _ in range(generator.randint(shortest, longest)))
        for _ in range(count)
    ]


def reference_logprobs(model: Any, tokens: Sequence[int]) -> Any:
    """Log-probabilities [T, V] of the next token after each of the tokens, by transformers, in one pass."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([list(tokens)])).logits[0].float(), dim=-1)


def assert_logprobs_are_the_models(model: Any, prompt: Sequence[int], completion: Completion) -> None:
    logprobs = reference_logprobs(model, [*prompt, *completion.token_ids])
    for index, (token, logprob) in enumerate(zip(completion.token_ids, completion.logprobs, strict=True)):
        assert logprob == pytest.approx(float(logprobs[len(prompt) + index - 1, token]), abs=1e-5)


async def generate_all(
    sampler: TorchEngine, requests: Sequence[tuple[Sequence[int], Sampling]], name: str = "s"
) -> list[Completion]:
    calls = [sampler.generate(p, s, session=f"{name}{index}") for index, (p, s) in enumerate(requests)]
    return list(await asyncio.gather(*calls))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("fused", [True, False])
def test_greedy_tokens_and_logprobs_equal_transformers(
    family: str, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fused:
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
            best = reference_logprobs(model, [*prompt, *completion.token_ids])[len(prompt) - 1 : -1].argmax(-1)
            assert best.tolist() == list(completion.token_ids)

    asyncio.run(main())


def test_prompts_longer_than_a_chunk_and_caches_longer_than_a_block_of_keys() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        asked = prompts(6, shortest=240, longest=620)
        completions = await generate_all(sampler, [(p, Sampling(max_new_tokens=30)) for p in asked])
        await sampler.close()
        for prompt, completion in zip(asked, completions, strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)

    asyncio.run(main())


async def converse(
    sampler: TorchEngine, name: str, prompt: Sequence[int], seed: int, delay: float = 0.0
) -> list[Completion]:
    """Three turns with observations that depend on the seed alone."""
    generator = random.Random(seed)
    tokens, completions = list(prompt), []
    for turn in range(3):
        await asyncio.sleep(generator.random() * delay)
        sampling = Sampling(max_new_tokens=3 + (seed * 7 + turn * 5) % 25, seed=seed * 10 + turn, stop_token_ids=(5,))
        completion = await sampler.generate(tokens, sampling, session=name)
        completions.append(completion)
        observation = [(seed * 31 + turn * 17 + k) % VOCABULARY for k in range(1 + (seed + turn) % 21)]
        tokens += [*completion.token_ids, *observation]
    await sampler.release(name)
    return completions


def test_turns_that_extend_a_session_equal_a_fresh_prompt() -> None:
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


@pytest.mark.parametrize("slots", [8, 24])
def test_bits_do_not_depend_on_company_order_or_timing(slots: int) -> None:
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


def test_logprobs_are_of_temperature_one_whatever_the_sampling() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        samplings = [
            Sampling(max_new_tokens=12, temperature=0.0),
            Sampling(max_new_tokens=12, temperature=1.5, seed=1),
            Sampling(max_new_tokens=12, top_k=4, seed=2),
            Sampling(max_new_tokens=12, temperature=0.7, top_p=0.5, seed=3),
        ]
        asked = prompts(4, seed=4)
        mixed = await generate_all(sampler, list(zip(asked, samplings, strict=True)))
        for prompt, sampling, completion in zip(asked, samplings, mixed, strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)
            assert completion == await sampler.generate(prompt, sampling, session=f"alone{sampling.seed}")
        await sampler.close()

    asyncio.run(main())


def test_the_seed_and_the_position_decide_the_token() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model)
        prompt = prompts(1, seed=5)[0]
        whole = await sampler.generate(prompt, Sampling(max_new_tokens=12, seed=9), session="a")
        half = await sampler.generate(prompt, Sampling(max_new_tokens=6, seed=9), session="b")
        rest = await sampler.generate((*prompt, *half.token_ids), Sampling(max_new_tokens=6, seed=9), session="b")
        other = await sampler.generate(prompt, Sampling(max_new_tokens=12, seed=10), session="c")
        assert half.token_ids + rest.token_ids == whole.token_ids
        assert other.token_ids != whole.token_ids
        await sampler.close()

    asyncio.run(main())


def test_a_stop_token_is_kept_and_limits_end_with_length() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, context=40)
        prompt = prompts(1, seed=6, shortest=30, longest=30)[0]
        free = await sampler.generate(prompt, Sampling(max_new_tokens=50, seed=1), session="a")
        assert (len(free.token_ids), free.finish_reason) == (10, "length")
        stop = free.token_ids[4]
        first = free.token_ids.index(stop)
        stopped = await sampler.generate(
            prompt, Sampling(max_new_tokens=50, seed=1, stop_token_ids=(stop,)), session="b"
        )
        assert stopped.token_ids == free.token_ids[: first + 1]
        assert stopped.finish_reason == "stop"
        full = await sampler.generate(prompt + free.token_ids, Sampling(max_new_tokens=5), session="a")
        assert (full.token_ids, full.finish_reason) == ((), "length")
        await sampler.close()

    asyncio.run(main())


def test_new_weights_are_sampled_from_and_old_caches_forgotten() -> None:
    model = build()
    other = build(seed=1)

    async def main() -> None:
        sampler = engine(model)
        prompt = prompts(1, seed=7)[0]
        greedy = Sampling(max_new_tokens=8, temperature=0.0)
        before = await sampler.generate(prompt, greedy, session="a")
        with torch.no_grad():
            for parameter, changed in zip(model.parameters(), other.parameters(), strict=True):
                parameter.copy_(changed)
        assert await sampler.load_weights(Source(model, version=4)) == 4
        after = await sampler.generate(prompt, greedy, session="a")
        assert after.policy_version == 4
        assert after.token_ids != before.token_ids
        assert_logprobs_are_the_models(other, prompt, after)
        running = asyncio.create_task(sampler.generate(prompt, Sampling(max_new_tokens=400), session="b"))
        await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="in flight"):
            await sampler.load_weights(Source(model, version=5))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await sampler.load_weights(Source(model, version=5)) == 5
        await sampler.close()

    asyncio.run(main())


def test_cancelling_a_call_frees_its_slot() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=2)
        asked = prompts(6, seed=8)
        long = [
            asyncio.create_task(sampler.generate(p, Sampling(max_new_tokens=600), session=f"l{i}"))
            for i, p in enumerate(asked[:5])
        ]
        await asyncio.sleep(0.02)
        for task in long:
            task.cancel()
        completion = await asyncio.wait_for(
            sampler.generate(asked[5], Sampling(max_new_tokens=4), session="short"), timeout=5
        )
        assert len(completion.token_ids) == 4
        assert not sampler._scheduler.active
        await sampler.close()

    asyncio.run(main())


def test_a_failing_forward_pass_fails_the_calls_and_not_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=4)
        asked = prompts(8, seed=9)

        def fail(*_: object) -> None:
            raise RuntimeError("no memory left")

        with monkeypatch.context() as patch:
            patch.setattr("rlcore_rollout.engines.torch.decoder.Decoder.decode", fail)
            results = await asyncio.wait_for(
                asyncio.gather(
                    *(sampler.generate(p, Sampling(max_new_tokens=5), session=f"s{i}") for i, p in enumerate(asked)),
                    return_exceptions=True,
                ),
                timeout=5,
            )
        assert all(isinstance(result, EngineError) and "no memory left" in str(result) for result in results)
        again = await sampler.generate(asked[0], Sampling(max_new_tokens=5), session="s0")
        assert_logprobs_are_the_models(model, asked[0], again)
        await sampler.close()

    asyncio.run(main())


def test_weights_that_are_not_finite_are_an_engine_error() -> None:
    model = build()
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")

    async def main() -> None:
        sampler = engine(model)
        with pytest.raises(EngineError, match="not finite"):
            await sampler.generate((1, 2), Sampling(max_new_tokens=5), session="a")
        await sampler.close()

    asyncio.run(main())


def test_closing_fails_pending_calls_and_ends_the_thread() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=2)
        calls = [
            asyncio.create_task(sampler.generate(p, Sampling(max_new_tokens=600), session=str(i)))
            for i, p in enumerate(prompts(6))
        ]
        await asyncio.sleep(0.02)
        thread = sampler._thread
        await sampler.close()
        assert thread is not None
        assert not thread.is_alive()
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=5)
        assert all(isinstance(result, EngineError) for result in results)
        with pytest.raises(EngineError, match="closed"):
            await sampler.generate((1,), Sampling(max_new_tokens=1), session="late")
        await sampler.close()

    asyncio.run(main())


def test_one_engine_serves_several_event_loops_in_turn() -> None:
    sampler = engine(build())
    greedy = Sampling(max_new_tokens=5, temperature=0.0)
    first = asyncio.run(sampler.generate((1, 2, 3), greedy, session="a"))
    second = asyncio.run(sampler.generate((1, 2, 3), greedy, session="b"))
    assert first == second
    asyncio.run(sampler.close())


def test_the_event_loop_stays_free_while_tokens_are_sampled() -> None:
    async def main() -> int:
        sampler = engine(build())
        calls = [
            asyncio.create_task(sampler.generate(p, Sampling(max_new_tokens=200), session=str(i)))
            for i, p in enumerate(prompts(16))
        ]
        ticks = 0
        while not all(call.done() for call in calls):
            await asyncio.sleep(0.001)
            ticks += 1
        await sampler.close()
        return ticks

    assert asyncio.run(main()) > 10


def test_unusable_prompts_are_refused_alone() -> None:
    async def main() -> None:
        sampler = engine(build())
        for prompt in ((), (VOCABULARY,), (-1,)):
            with pytest.raises(EngineError, match="ids from 0 to 96"):
                await sampler.generate(prompt, Sampling(max_new_tokens=1), session="a")
        await sampler.close()

    asyncio.run(main())


def test_a_session_generates_one_thing_at_a_time() -> None:
    async def main() -> None:
        sampler = engine(build())
        calls = [sampler.generate((1, 2), Sampling(max_new_tokens=9), session="a") for _ in range(2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, EngineError) for result in results] == [False, True]
        await sampler.close()

    asyncio.run(main())


def test_a_folder_is_loaded_when_there_is_no_module(tmp_path: Path) -> None:
    model = build("qwen3")
    model.save_pretrained(tmp_path)

    async def main() -> None:
        sampler = TorchEngine(TorchEngineConfig(), Source(folder=tmp_path), EngineContext(device="cpu"))
        completion = await sampler.generate((1, 2, 3), Sampling(max_new_tokens=5), session="a")
        assert_logprobs_are_the_models(model, (1, 2, 3), completion)
        await sampler.close()

    asyncio.run(main())


def test_other_architectures_are_refused_with_the_supported_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(UserError, match="Qwen2ForCausalLM") as refusal:
        TorchEngine(TorchEngineConfig(), Source(folder=tmp_path), EngineContext())
    assert "gpt2" in str(refusal.value)
    with pytest.raises(UserError, match="Qwen3ForCausalLM"):
        engine(torch.nn.Linear(2, 2))
    sliding = build(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    with pytest.raises(UserError, match="Qwen2ForCausalLM") as refusal:
        engine(sliding)
    assert "sliding_attention" in str(refusal.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_folder_is_refused(tmp_path: Path, name: str) -> None:
    build("qwen3").save_pretrained(tmp_path)
    (tmp_path / name).write_bytes(b'{"a": ' * 20)
    with pytest.raises(UserError, match="cannot be loaded"):
        TorchEngine(TorchEngineConfig(), Source(folder=tmp_path), EngineContext(device="cpu"))


def test_weights_that_are_missing_are_never_made_up(tmp_path: Path) -> None:
    model = build("qwen3")
    weights = {name: weight for name, weight in model.state_dict().items() if "layers.0.mlp" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(UserError, match="not complete"):
        TorchEngine(TorchEngineConfig(), Source(folder=tmp_path), EngineContext(device="cpu"))


def test_small_models_are_reread_and_large_ones_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    from rlcore_rollout.engines.torch.weights import read_weights

    model = build("qwen2-untied")
    weights = read_weights(model)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    layer = weights.layers[0]
    projections = (*layer.query_key_value, *layer.gate_up, layer.down, layer.attention_output, weights.head)
    assert all(weight.data_ptr() in own for weight, _ in projections)


def test_forgotten_sessions_are_computed_anew() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=8, deterministic=False)
        asked = prompts(80, seed=11, shortest=40)
        first = await generate_all(sampler, [(p, Sampling(max_new_tokens=3, seed=1)) for p in asked])
        kept = len(sampler._scheduler._sessions)
        assert 8 < kept < len(asked)
        longer = [(*p, *c.token_ids, 7, 8) for p, c in zip(asked, first, strict=True)]
        second = await generate_all(sampler, [(p, Sampling(max_new_tokens=3, seed=2)) for p in longer])
        for prompt, completion in zip(longer, second, strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)
        for index in range(len(asked)):
            await sampler.release(f"s{index}")
        await sampler.generate((1,), Sampling(max_new_tokens=1), session="last")
        assert set(sampler._scheduler._sessions) == {"last"}
        await sampler.close()

    asyncio.run(main())


def test_a_machine_whose_rows_depend_on_their_number_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rlcore_rollout.engines.torch.engine.rows_are_independent", lambda *_: False)
    with pytest.raises(UserError, match="deterministic"):
        engine(build(), deterministic=True)
    assert not engine(build()).deterministic
    assert "not bit-reproducible" in caplog.text
    assert not engine(build(), deterministic=False).deterministic
