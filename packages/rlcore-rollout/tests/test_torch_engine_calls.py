"""The torch engine's calls: started, cancelled, failed, closed, and under new weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import EngineError  # noqa: E402
from rlcore.types import MediaSpan, Prompt, Sampling, TokenIds  # noqa: E402
from torch_models import (  # noqa: E402
    VOCABULARY,
    as_prompt,
    assert_logprobs_are_the_models,
    build,
    engine,
    generate_all,
    prompts,
)


def test_new_weights_are_used_and_old_caches_dropped() -> None:
    model = build()
    other = build(seed=1)

    async def main() -> None:
        sampler = engine(model)
        prompt = prompts(1, seed=7)[0]
        greedy = Sampling(max_new_tokens=8, temperature=0.0)
        before = await sampler.generate(as_prompt(prompt), greedy, session="a")
        with torch.no_grad():
            for parameter, changed in zip(model.parameters(), other.parameters(), strict=True):
                parameter.copy_(changed)
        assert await sampler.load_weights(LiveWeights(model, version=4)) == 4
        after = await sampler.generate(as_prompt(prompt), greedy, session="a")
        assert after.policy_version == 4
        assert after.token_ids != before.token_ids
        assert_logprobs_are_the_models(other, prompt, after)
        await sampler.close()

    asyncio.run(main())


def test_cancelled_call_frees_its_slot() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=2)
        asked = prompts(6, seed=8)
        long = [
            asyncio.create_task(sampler.generate(as_prompt(p), Sampling(max_new_tokens=600), session=f"l{i}"))
            for i, p in enumerate(asked[:5])
        ]
        await asyncio.sleep(0.02)
        for task in long:
            task.cancel()
        completion = await asyncio.wait_for(
            sampler.generate(as_prompt(asked[5]), Sampling(max_new_tokens=4), session="short"), timeout=5
        )
        assert len(completion.token_ids) == 4
        assert not sampler._scheduler.active
        await sampler.close()

    asyncio.run(main())


def test_failing_forward_pass_fails_the_calls_and_not_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
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
                    *(
                        sampler.generate(as_prompt(p), Sampling(max_new_tokens=5), session=f"s{i}")
                        for i, p in enumerate(asked)
                    ),
                    return_exceptions=True,
                ),
                timeout=5,
            )
        assert all(isinstance(result, EngineError) and "no memory left" in str(result) for result in results)
        again = await sampler.generate(as_prompt(asked[0]), Sampling(max_new_tokens=5), session="s0")
        assert_logprobs_are_the_models(model, asked[0], again)
        await sampler.close()

    asyncio.run(main())


def test_non_finite_weights_are_an_engine_error() -> None:
    model = build()
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")

    async def main() -> None:
        sampler = engine(model)
        with pytest.raises(EngineError, match="not finite"):
            await sampler.generate(as_prompt((1, 2)), Sampling(max_new_tokens=5), session="a")
        await sampler.close()

    asyncio.run(main())


def test_close_fails_pending_calls_and_ends_the_thread() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=2)
        calls = [
            asyncio.create_task(sampler.generate(as_prompt(p), Sampling(max_new_tokens=600), session=str(i)))
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
            await sampler.generate(as_prompt((1,)), Sampling(max_new_tokens=1), session="late")
        await sampler.close()

    asyncio.run(main())


def test_one_engine_serves_several_event_loops_in_turn() -> None:
    sampler = engine(build())
    greedy = Sampling(max_new_tokens=5, temperature=0.0)
    first = asyncio.run(sampler.generate(as_prompt((1, 2, 3)), greedy, session="a"))
    second = asyncio.run(sampler.generate(as_prompt((1, 2, 3)), greedy, session="b"))
    assert first == second
    asyncio.run(sampler.close())


def test_event_loop_is_not_blocked_during_sampling() -> None:
    async def main() -> int:
        sampler = engine(build())
        calls = [
            asyncio.create_task(sampler.generate(as_prompt(p), Sampling(max_new_tokens=200), session=str(i)))
            for i, p in enumerate(prompts(16))
        ]
        ticks = 0
        while not all(call.done() for call in calls):
            await asyncio.sleep(0.001)
            ticks += 1
        await sampler.close()
        return ticks

    assert asyncio.run(main()) > 10


def test_invalid_prompt_fails_only_its_own_call() -> None:
    async def main() -> None:
        sampler = engine(build())
        for prompt in ((), (VOCABULARY,), (-1,)):
            with pytest.raises(EngineError, match="ids from 0 to 96"):
                await sampler.generate(as_prompt(prompt), Sampling(max_new_tokens=1), session="a")
        await sampler.close()

    asyncio.run(main())


def test_prompts_with_images_are_rejected() -> None:
    async def main() -> None:
        sampler = engine(build())
        prompt = Prompt(token_ids=TokenIds((1, 2, 3)), media=(MediaSpan(sha256="cat", offset=1, length=1),))
        with pytest.raises(EngineError):
            await sampler.generate(prompt, Sampling(max_new_tokens=1), session="a")
        await sampler.close()

    asyncio.run(main())


def test_session_generates_one_completion_at_a_time() -> None:
    async def main() -> None:
        sampler = engine(build())
        calls = [sampler.generate(as_prompt((1, 2)), Sampling(max_new_tokens=500), session="a") for _ in range(2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, EngineError) for result in results] == [False, True]
        await sampler.close()

    asyncio.run(main())


def test_dropped_sessions_are_recomputed() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=8, deterministic=False)
        asked = prompts(160, seed=11, shortest=40)
        first = await generate_all(sampler, [(p, Sampling(max_new_tokens=3, seed=1)) for p in asked])
        kept = len(sampler._scheduler._sessions)
        assert 8 < kept < len(asked)
        longer = [(*p, *c.token_ids, 7, 8) for p, c in zip(asked, first, strict=True)]
        second = await generate_all(sampler, [(p, Sampling(max_new_tokens=3, seed=2)) for p in longer])
        for prompt, completion in zip(longer, second, strict=True):
            assert_logprobs_are_the_models(model, prompt, completion)
        for index in range(len(asked)):
            await sampler.release(f"s{index}")
        await sampler.generate(as_prompt((1,)), Sampling(max_new_tokens=1), session="last")
        assert set(sampler._scheduler._sessions) == {"last"}
        await sampler.close()

    asyncio.run(main())


def test_sleep_returns_the_memory_of_the_caches() -> None:
    model = build()

    async def main() -> None:
        sampler = engine(model, slots=64)
        sampling = Sampling(max_new_tokens=300, seed=3)
        before = await sampler.generate(as_prompt(prompts(1)[0]), sampling, session="a")
        caches = 2 * sampler._scheduler._cache.keys.nbytes
        assert caches > 5e6
        filled = anonymous_bytes()
        await sampler.sleep()
        assert filled - anonymous_bytes() > 0.25 * caches  # other memory of the process changes, too
        again = await sampler.generate(as_prompt(prompts(1)[0]), sampling, session="a")
        assert (again.token_ids, again.logprobs) == (before.token_ids, before.logprobs)
        running = asyncio.create_task(sampler.generate(as_prompt(prompts(1)[0]), sampling, session="b"))
        await asyncio.sleep(0.01)
        with pytest.raises(EngineError, match="in flight"):
            await sampler.sleep()
        await running
        await sampler.close()
        await sampler.sleep()

    asyncio.run(main())


def anonymous_bytes() -> int:
    """Memory of this process that no file backs, from Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("RssAnon"))
