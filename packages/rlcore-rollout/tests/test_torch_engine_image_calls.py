"""Calls with pictures: what is encoded and when, what is kept, and prompts that do not match their pictures."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence as Series
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import EngineError, UserError  # noqa: E402
from rlcore.images import ImageProcessor  # noqa: E402
from rlcore.models.weights import FolderWeights  # noqa: E402
from rlcore.types import Completion, MediaSpan, Prompt, Sampling, media_hash  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch import vision  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from rlcore_rollout.engines.torch.sequences import Sequence  # noqa: E402
from torch_models import build, engine, needs_equal_rows  # noqa: E402
from vision_models import picture, processor_of, vision_language_model  # noqa: E402
from vision_prompts import (  # noqa: E402
    PAD,
    VIDEO,
    assert_equals_transformers,
    drawn,
    extended,
    prompt_of,
    vision_engine,
)

FAMILY = "qwen2_5_vl"
SAMPLED = Sampling(max_new_tokens=5, seed=3, suppressed_token_ids=(PAD, VIDEO))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The images of each call of the vision tower."""
    calls: list[list[bytes]] = []
    tower = vision.visual_features

    def recorded(module: Any, images: Series[bytes], processor: ImageProcessor) -> Any:
        calls.append(list(images))
        return tower(module, images, processor)

    monkeypatch.setattr(vision, "visual_features", recorded)
    return calls


async def ask(
    sampler: TorchEngine, *prompts: Prompt, name: str = "s", sampling: Sampling = SAMPLED
) -> list[Completion]:
    calls = (sampler.generate(prompt, sampling, session=f"{name}{index}") for index, prompt in enumerate(prompts))
    return list(await asyncio.gather(*calls))


@torch.inference_mode()
def admit(sampler: TorchEngine, *prompts: Prompt, name: str = "s") -> None:
    """Sample from all prompts, which arrive at the same time."""
    for index, prompt in enumerate(prompts):
        sequence = Sequence(
            prompt=prompt, sampling=SAMPLED, session=f"{name}{index}", limit=2, finish=lambda completion: None
        )
        sampler._scheduler.submit(sequence)
    while sampler._scheduler.busy:
        sampler._scheduler.step()


@pytest.mark.parametrize("deterministic", [True, False])
@needs_equal_rows
def test_images_of_all_new_prompts_are_encoded_once(encoded: list[list[bytes]], deterministic: bool) -> None:
    pictures = [drawn(FAMILY, 4, 4, seed) for seed in range(4)]
    other = drawn(FAMILY, 3, 3)
    asked = [prompt_of(FAMILY, [1, 2], one, [3], two) for one in pictures for two in (pictures[0], other)]
    sampler = vision_engine(FAMILY, slots=64, deterministic=deterministic)
    admit(sampler, *(prompt for prompt in asked for _ in range(4)))
    if not deterministic:
        assert encoded == [[pictures[0], other, *pictures[1:]]]
        return
    assert [len(call) for call in encoded] == [1, 1, 1, 1, 4, 1], "each alone, then together for comparison"
    encoded.clear()
    fresh = [drawn(FAMILY, 4, 4, seed) for seed in range(10, 14)]
    admit(sampler, *(prompt_of(FAMILY, [1], one) for one in fresh), name="later")
    assert encoded == [fresh]


def test_images_are_encoded_separately_where_the_batch_changes_them(
    encoded: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision, "_equal", lambda *_: False)
    asked = [prompt_of(FAMILY, [1], drawn(FAMILY, 4, 4, seed)) for seed in range(8)]
    sampler = vision_engine(FAMILY)
    admit(sampler, *asked[:4])
    encoded.clear()
    admit(sampler, *asked[4:], name="later")
    assert [len(call) for call in encoded] == [1, 1, 1, 1]


def test_large_images_are_encoded_in_several_calls(encoded: list[list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision, "CALL_TOKENS", 20)
    sampler = vision_engine(FAMILY, deterministic=False)
    admit(sampler, *(prompt_of(FAMILY, [1], drawn(FAMILY, 3, 3, seed)) for seed in range(5)))
    assert [len(call) for call in encoded] == [2, 2, 1]


def test_later_turns_encode_only_new_images(encoded: list[list[bytes]]) -> None:
    model, first, second = vision_language_model(FAMILY), drawn(FAMILY, 2, 3, 1), drawn(FAMILY, 3, 2, 2)

    async def main() -> None:
        sampler = vision_engine(FAMILY, model)
        prompt = prompt_of(FAMILY, [1], first, [2])
        (one,) = await ask(sampler, prompt)
        longer = extended(prompt, processor_of(FAMILY), one.token_ids, [4], second, [5])
        (two,) = await ask(sampler, longer)
        assert encoded == [[first], [second]]
        last = extended(longer, processor_of(FAMILY), two.token_ids, [6, 7])
        (three,) = await ask(sampler, last)
        assert len(encoded) == 2
        for asked, completion in ((prompt, one), (longer, two), (last, three)):
            assert_equals_transformers(FAMILY, model, asked, completion)
        await sampler.close()

    asyncio.run(main())


def test_features_are_not_kept_after_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    features: list[Any] = []
    tower = vision.visual_features

    def watched(*arguments: Any) -> Any:
        found = tower(*arguments)
        features.append(weakref.ref(found.features_KD))
        return found

    monkeypatch.setattr(vision, "visual_features", watched)

    async def main() -> None:
        sampler = vision_engine(FAMILY)
        await ask(sampler, prompt_of(FAMILY, [1], drawn(FAMILY, 4, 4), [2]))
        gc.collect()
        assert [reference() for reference in features] == [None]
        await sampler.close()

    asyncio.run(main())


def test_new_weights_of_tower_and_text_are_used() -> None:
    model = vision_language_model(FAMILY)
    prompt = prompt_of(FAMILY, [1], drawn(FAMILY, 4, 4), [2])

    async def main() -> None:
        sampler = vision_engine(FAMILY, model)
        (before,) = await ask(sampler, prompt)
        with torch.no_grad():
            for parameter in model.model.visual.parameters():
                parameter.mul_(1.5)
        await sampler.load_weights(LiveWeights(model, version=4))
        (after,) = await ask(sampler, prompt)
        assert after.logprobs != before.logprobs
        assert_equals_transformers(FAMILY, model, prompt, after)
        other = vision_language_model(FAMILY)
        await sampler.load_weights(LiveWeights(other, version=5))
        (again,) = await ask(sampler, prompt)
        assert replace(again, policy_version=before.policy_version) == before
        await sampler.close()

    asyncio.run(main())


def test_weights_of_the_tower_change_while_a_completion_continues() -> None:
    model, prompt = vision_language_model(FAMILY), prompt_of(FAMILY, [1], drawn(FAMILY, 4, 4), [2])
    live = LiveWeights(model, version=0)
    context = EngineContext(device="cpu", sampled_during_updates=True, images=processor_of(FAMILY))

    async def main() -> None:
        sampler = TorchEngine(TorchEngineConfig(slots=8), live, context)
        long = replace(SAMPLED, max_new_tokens=60)
        running = asyncio.create_task(sampler.generate(prompt, long, session="running"))
        (before,) = await ask(sampler, prompt, name="before")
        with torch.no_grad():
            for parameter in model.model.visual.parameters():
                parameter.mul_(1.5)
        (copied,) = await ask(sampler, prompt, name="copied")
        assert copied == before
        live.version = 1
        await sampler.load_weights(live)
        (after,) = await ask(sampler, prompt, name="after")
        assert after.policy_version == 1
        assert_equals_transformers(FAMILY, model, prompt, after)
        assert [span.version for span in (await running).versions] == [0, 1]
        await sampler.close()

    asyncio.run(main())


def test_sleep_forgets_computed_images() -> None:
    prompt = prompt_of(FAMILY, [1], drawn(FAMILY, 4, 4), [2])

    async def main() -> None:
        sampler = vision_engine(FAMILY)
        before = await ask(sampler, prompt)
        await sampler.sleep()
        assert not sampler._scheduler.busy
        assert await ask(sampler, prompt) == before
        await sampler.close()

    asyncio.run(main())


def test_folder_is_loaded_with_its_image_processor(tmp_path: Path) -> None:
    model = vision_language_model(FAMILY)
    model.save_pretrained(tmp_path)
    settings = '{"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 784}'
    (tmp_path / "preprocessor_config.json").write_text(settings, encoding="utf-8")
    prompt = prompt_of(FAMILY, [1], drawn(FAMILY, 2, 3), [2])

    async def main() -> Completion:
        sampler = TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))
        (completion,) = await ask(sampler, prompt)
        await sampler.close()
        return completion

    assert_equals_transformers(FAMILY, model, prompt, asyncio.run(main()))


def test_processor_of_another_model_is_rejected() -> None:
    context = EngineContext(images=ImageProcessor(patch_size=16))
    with pytest.raises(UserError, match="patch"):
        TorchEngine(TorchEngineConfig(), LiveWeights(vision_language_model(FAMILY)), context)


def good_prompt() -> Prompt:
    return prompt_of(FAMILY, [1, 2], drawn(FAMILY, 4, 3), [3])


def with_span(**changes: Any) -> Prompt:
    prompt = good_prompt()
    return replace(prompt, media=(replace(prompt.media[0], **changes),))


def twice() -> Prompt:
    prompt = good_prompt()
    return replace(prompt, media=(*prompt.media, *prompt.media))


def showing(data: bytes) -> Prompt:
    prompt = good_prompt()
    return replace(with_span(sha256=media_hash(data)), images={**prompt.images, media_hash(data): data})


WRONG = {
    "no bytes": (lambda: replace(good_prompt(), images={}), "no bytes"),
    "another grid": (lambda: with_span(rows=4, columns=3), "3 x 4 visual tokens"),
    "too few tokens": (lambda: with_span(length=11), "11 tokens"),
    "no grid": (lambda: with_span(rows=0, columns=0), "0 rows x 0 columns"),
    "outside": (lambda: with_span(offset=10), "inside the prompt"),
    "twice": (twice, "apart"),
    "no picture": (lambda: showing(b"this is no picture"), "cannot be used: an image must be a readable"),
    "not fitted": (lambda: showing(picture(120, 84, 0)), "cannot be used: a fitted image"),
}


@pytest.mark.parametrize("case", WRONG)
def test_prompt_that_does_not_match_its_images_is_rejected(case: str) -> None:
    make, message = WRONG[case]

    async def main() -> None:
        sampler = vision_engine(FAMILY)
        with pytest.raises(EngineError, match=message):
            await ask(sampler, make())
        assert len((await ask(sampler, good_prompt()))[0].token_ids) == 5
        await sampler.close()

    asyncio.run(main())


def test_damaged_image_fails_only_the_calls_that_show_it() -> None:
    prompt = prompt_of(FAMILY, [1], drawn(FAMILY, 4, 3, 1), [2])
    (span,) = prompt.media
    data = prompt.images[span.sha256]
    broken = data.replace(data[200:400], bytes(200))
    other = replace(prompt, media=(replace(span, sha256=media_hash(broken)),), images={media_hash(broken): broken})

    async def main() -> None:
        sampler = vision_engine(FAMILY)
        calls = [sampler.generate(p, SAMPLED, session=str(i)) for i, p in enumerate((prompt, other, prompt, other))]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(result, EngineError) for result in results] == [False, True, False, True], results
        await sampler.close()

    asyncio.run(main())


@pytest.mark.parametrize("plainly", [False, True])
def test_models_without_vision_reject_images_and_name_the_families(
    plainly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plainly:
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FAMILIES", ())

    async def main() -> None:
        sampler = engine(build())
        prompt = Prompt(token_ids=good_prompt().token_ids, media=(MediaSpan(sha256="cat", offset=1, length=1),))
        with pytest.raises(EngineError, match=r"Qwen2_5_VLForConditionalGeneration.*Qwen2ForCausalLM"):
            await ask(sampler, prompt)
        await sampler.close()

    asyncio.run(main())
