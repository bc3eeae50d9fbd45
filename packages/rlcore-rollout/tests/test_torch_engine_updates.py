"""New weights while the torch engine samples, against slow loops of transformers that keep the old keys and values."""

from __future__ import annotations

import asyncio
import copy
import gc
import random
import weakref
from collections.abc import Sequence as Series
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.testing import check_engine  # noqa: E402
from rlcore.types import Completion, Sampling, VersionSpan  # noqa: E402
from rlcore.types.checking import flaw_in_completion  # noqa: E402
from rlcore_rollout.engines.context import CHECK_SESSION, EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from rlcore_rollout.engines.torch.generic import PlainScheduler  # noqa: E402
from rlcore_rollout.engines.torch.scheduler import Scheduler  # noqa: E402
from rlcore_rollout.engines.torch.sequences import Sequence  # noqa: E402
from rlcore_rollout.engines.torch.weights import read_weights  # noqa: E402
from torch_models import VOCABULARY, as_prompt, build, generate_all, needs_equal_rows, prompts  # noqa: E402
from transformers import DynamicCache  # noqa: E402

GREEDY = Sampling(max_new_tokens=12, temperature=0.0)
PLAINLY = pytest.mark.parametrize("plainly", [False, True], ids=["decoder", "plain"])


def engine_of(source: LiveWeights, **options: Any) -> TorchEngine:
    """An engine of a trainer that changes its weights meanwhile."""
    context = EngineContext(device="cpu", sampled_during_updates=True)
    return TorchEngine(TorchEngineConfig(slots=16, **options), source, context)


def train(live: LiveWeights) -> None:
    with torch.no_grad():
        for parameter in live.module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    live.version += 1


def spans_of(completion: Completion) -> tuple[VersionSpan, ...]:
    whole = VersionSpan(completion.policy_version, len(completion.token_ids))
    return completion.versions or (whole,)


@torch.no_grad()
def slow_logprobs(models: dict[int, Any], prompt: Series[int], completion: Completion) -> Any:
    """The log-probabilities [T, V] of a completion: each version continues the keys and values of those before it."""
    cache, unread, rest, found = DynamicCache(), list(prompt), list(completion.token_ids), []
    for version, count in spans_of(completion):
        for token in rest[:count]:
            output = models[version](torch.tensor([unread]), past_key_values=cache, use_cache=True)
            found.append(output.logits[0, -1].log_softmax(-1))
            unread = [token]
        rest = rest[count:]
    return torch.stack(found)


def assert_equals_slow_loop(models: dict[int, Any], prompt: Series[int], completion: Completion) -> None:
    assert flaw_in_completion(completion) is None
    logprobs_TV, ids_T1 = slow_logprobs(models, prompt, completion), torch.tensor(completion.token_ids)[:, None]
    own_T = torch.tensor(list(completion.logprobs))
    torch.testing.assert_close(own_T, logprobs_TV.gather(1, ids_T1)[:, 0], rtol=0, atol=2e-4)


class Calls:
    """A scheduler whose weights change after a given number of steps."""

    def __init__(self, model: Any, plainly: bool) -> None:
        self.answers: dict[str, Any] = {}
        self.plainly = plainly
        self.scheduler: Any = (
            PlainScheduler(model) if plainly else Scheduler(read_weights(model), slots=8, keep_all=True)
        )

    def submit(self, name: str, prompt: Series[int]) -> None:
        self.scheduler.submit(
            Sequence(
                prompt=as_prompt(prompt),
                sampling=GREEDY,
                session=name,
                limit=GREEDY.max_new_tokens,
                finish=lambda answer: self.answers.update({name: answer}),
            )
        )

    @torch.inference_mode()
    def step(self, count: int = 1000) -> None:
        while count and self.scheduler.busy:
            self.scheduler.step()
            count -= 1

    def change(self, model: Any, version: int) -> None:
        self.scheduler.change(model if self.plainly else read_weights(model), version)


@pytest.mark.numeric
@PLAINLY
def test_tokens_after_a_change_continue_the_old_keys_with_the_new_weights(plainly: bool) -> None:
    models = {0: build(), 1: build(seed=1), 2: build(seed=2)}
    calls, (prompt, other) = Calls(models[0], plainly), prompts(2, seed=3, shortest=70, longest=70)
    calls.submit("a", prompt)
    calls.step(5)
    drawn = 5 if plainly else 6  # the decoder draws the first two tokens in one step
    calls.submit("waiting", other)
    calls.change(models[1], 1)
    calls.change(models[2], 2)  # before any token of version 1
    calls.step()
    answer = calls.answers["a"]
    assert (answer.policy_version, answer.versions) == (0, (VersionSpan(0, drawn), VersionSpan(2, 12 - drawn)))
    assert_equals_slow_loop(models, prompt, answer)
    expected = slow_logprobs(models, prompt, answer)
    assert expected.argmax(-1).tolist() == list(answer.token_ids)
    assert (calls.answers["waiting"].policy_version, calls.answers["waiting"].versions) == (2, ())


@PLAINLY
def test_nothing_that_old_weights_computed_is_used_for_new_calls(plainly: bool) -> None:
    old, new = build(), build(seed=1)
    first, idle, active = prompts(3, seed=4, shortest=70, longest=70)

    def later_answers(calls: Calls) -> list[Completion]:
        """Of a sibling, of a prompt with the same beginning, and of the next turns of both sessions."""
        asked = {"sibling": first, "longer": (*first, 1, 2), "idle": (*idle, 3, 4), "active": (*active, 5, 6)}
        for name, prompt in asked.items():
            calls.submit(name, prompt)
            calls.step()
        return [calls.answers[name] for name in asked]

    calls = Calls(old, plainly)
    for name, prompt in (("first", first), ("idle", idle)):
        calls.submit(name, prompt)
        calls.step()
    calls.submit("active", active)
    calls.step(3)
    calls.change(new, 1)
    calls.step()
    assert [span.version for span in calls.answers["active"].versions] == [0, 1]
    fresh = Calls(new, plainly)
    assert [replace(one, policy_version=0) for one in later_answers(calls)] == later_answers(fresh)


@pytest.mark.numeric
@pytest.mark.parametrize("plainly", [pytest.param(False, id="decoder", marks=pytest.mark.slow), True])
def test_random_changes_during_many_sessions(plainly: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plainly:
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FAMILIES", ())
    sessions, turns, changes = (4, 2, 10) if plainly else (30, 3, 50)
    models = {0: build()}
    live = LiveWeights(copy.deepcopy(models[0]), version=0)
    generator, found = random.Random(0), list[tuple[list[int], Completion]]()

    async def converse(sampler: TorchEngine, name: str, prompt: Series[int]) -> None:
        tokens = list(prompt)
        for turn in range(turns):
            sampling = Sampling(max_new_tokens=generator.randint(5, 40), seed=turn)
            completion = await sampler.generate(as_prompt(tokens), sampling, session=name)
            found.append((list(tokens), completion))
            tokens += [*completion.token_ids, generator.randrange(VOCABULARY)]
            await asyncio.sleep(generator.random() * 0.01)
        await sampler.release(name)

    async def main() -> None:
        sampler = engine_of(live)
        asked = prompts(sessions, seed=5)
        running = asyncio.gather(*(converse(sampler, f"c{i}", prompt) for i, prompt in enumerate(asked)))
        for version in range(1, changes + 1):
            train(live)
            models[version] = copy.deepcopy(live.module)
            assert await sampler.load_weights(live) == version
            await asyncio.sleep(generator.random() * 0.01)
        await asyncio.wait_for(running, timeout=60)
        (last,) = await generate_all(sampler, [(asked[0], GREEDY)])
        found.append((list(asked[0]), last))
        assert last.policy_version == changes
        assert not sampler._pending
        await sampler.close()

    asyncio.run(main())
    assert len(found) == sessions * turns + 1
    assert sum(bool(completion.versions) for _, completion in found) >= (1 if plainly else 20)
    for prompt, completion in found:
        assert_equals_slow_loop(models, prompt, completion)


@needs_equal_rows
@PLAINLY
def test_check_of_the_weights_precedes_the_calls_that_wait(plainly: bool) -> None:
    asked, checked = prompts(5 if plainly else 20, seed=6), prompts(1, seed=7)[0]

    def sampled(*, check: bool) -> dict[str, Completion]:
        calls = Calls(build(), plainly)
        for number, prompt in enumerate(asked):
            calls.submit(f"{number}", prompt)
        calls.step(2)
        if check:
            calls.submit(CHECK_SESSION, checked)
            while CHECK_SESSION not in calls.answers:
                calls.step(1)
            assert len(calls.answers) <= (2 if plainly else 16), "others than those of before and beside it have ended"
        calls.step()
        return calls.answers

    answers = sampled(check=True)
    del answers[CHECK_SESSION]
    assert answers == sampled(check=False)


def test_old_weights_are_freed_while_a_completion_continues() -> None:
    live = LiveWeights(build(), version=0)

    async def main() -> None:
        sampler = engine_of(live)
        running = asyncio.create_task(sampler.generate(as_prompt((1, 2, 3)), Sampling(max_new_tokens=100), session="a"))
        await asyncio.sleep(0.01)
        old = [weakref.ref(sampler._scheduler._decoder.weights.embedding), weakref.ref(sampler._model)]
        live.version = 1
        await sampler.load_weights(live)
        completion = await running
        gc.collect()
        assert [span.version for span in completion.versions] == [0, 1]
        assert [one() for one in old] == [None, None]
        await sampler.close()

    asyncio.run(main())


def test_engine_conforms_while_the_weights_change() -> None:
    live = LiveWeights(build(), version=0)
    check_engine(engine_of(live), live, as_prompt((1, 2, 3)), lambda: train(live))


def test_a_failed_load_does_not_affect_completions_in_flight() -> None:
    model = build()

    class Broken(LiveWeights):
        def weights(self, *, adapter_only: bool = False) -> Any:
            raise OSError("the connection was lost")

    async def main() -> None:
        sampler = engine_of(LiveWeights(model))
        running = asyncio.create_task(sampler.generate(as_prompt((1, 2)), Sampling(max_new_tokens=200), session="a"))
        await asyncio.sleep(0.01)
        with pytest.raises(OSError, match="lost"):
            await sampler.load_weights(Broken(model))
        assert (await running).versions == ()
        await sampler.close()

    asyncio.run(main())
