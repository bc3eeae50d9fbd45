"""Packed rows with images equal the models' own forward pass on the output of their processor."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor
from rlcore.types import LossMask, MediaSpan, TokenIds
from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence, pack
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import PackedForward, PlainForward, choose_forward
from torch import Tensor
from transformers import Qwen2VLImageProcessor
from vision_models import FAMILIES, IMAGE, picture, processor_of, vision_folder, vision_language_model

pytestmark = pytest.mark.numeric

CPU = torch.device("cpu")
Part = int | tuple[int, int, int]
"""A number of text tokens, or the seed, width and height of an image in visual tokens."""


def sequence(parts: list[Part], *, processor: ImageProcessor, prompt: int = 0, seed: int = 0) -> TrainingSequence:
    """Text with images; tokens after the prompt are trained, except for those of images and the first one of a text."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = []
    mask: list[bool] = []
    media: list[MediaSpan] = []
    images: dict[str, bytes] = {}
    for part in parts:
        if isinstance(part, int):
            drawn = torch.randint(1, 50, (part,), generator=generator).tolist()
            mask += [bool(i) for i in range(part)]
            ids += drawn
            continue
        number, columns, rows = part
        data = picture(columns * processor.token_side, rows * processor.token_side, number)
        name = hashlib.sha256(data).hexdigest()
        images[name] = data
        media.append(MediaSpan(sha256=name, offset=len(ids), length=rows * columns, rows=rows, columns=columns))
        ids += [IMAGE] * (rows * columns)
        mask += [False] * (rows * columns)
    mask = [each and i >= prompt for i, each in enumerate(mask)]
    return TrainingSequence(
        token_ids=TokenIds(ids),
        loss_mask=LossMask(mask),
        media=tuple(media),
        images=images,
        prompt_length=prompt,
        weight=1.0,
    )


def family(processor: ImageProcessor, *tails: list[Part]) -> list[TrainingSequence]:
    """Siblings with the same prompt, which contains an image."""
    prompt: list[Part] = [3, (1, 3, 2), 4]
    found = []
    for seed, tail in enumerate(tails, start=1):
        head = sequence(prompt, processor=processor, seed=9)
        whole = sequence([*prompt, *tail], processor=processor, prompt=len(head), seed=seed)
        ids = [*head.token_ids, *list(whole.token_ids)[len(head) :]]
        found.append(
            TrainingSequence(
                token_ids=TokenIds(ids),
                loss_mask=whole.loss_mask,
                media=whole.media,
                images=whole.images,
                prompt_length=len(head),
            )
        )
    return found


def mixed(processor: ImageProcessor) -> list[TrainingSequence]:
    """Siblings, one of which has images in later turns; texts; an image that several sequences contain."""
    return [
        *family(processor, [6], [3, (2, 2, 2), 5, (1, 3, 2), 4], [9]),
        sequence([12], processor=processor, seed=5),
        sequence([2, (1, 3, 2), 3, (3, 1, 4), 7], processor=processor, seed=6),
        sequence([8], processor=processor, seed=7),
    ]


def own(model: Any, row: TrainingSequence, processor: ImageProcessor) -> Tensor:
    """Log-probabilities of the trained tokens from the model's own forward pass."""
    ids_1T = torch.tensor([list(row.token_ids)])
    inputs: dict[str, Tensor] = {}
    if row.media:
        theirs = Qwen2VLImageProcessor(patch_size=processor.patch_size, min_pixels=400)
        images = [Image.open(io.BytesIO(row.images[span.sha256])) for span in row.media]
        inputs = {**theirs(images, return_tensors="pt"), "mm_token_type_ids": (ids_1T == IMAGE).long()}
    logits_TV = model(input_ids=ids_1T, use_cache=False, **inputs).logits[0, :-1]
    logprobs_T = logits_TV.log_softmax(-1).gather(1, ids_1T[0, 1:, None])[:, 0]
    return logprobs_T[torch.tensor(list(row.loss_mask)[1:])]


def packed(policy: CausalLanguageModel, batches: list[MicroBatch]) -> dict[int, Tensor]:
    found: dict[int, Tensor] = {}
    for batch in batches:
        with policy.computing():
            logprobs_M, _ = policy.evaluate(batch)
        for i in batch.sequence_M.unique().tolist():
            found[i] = logprobs_M[batch.sequence_M == i]
    return found


def policy_of(family: str) -> tuple[CausalLanguageModel, ImageProcessor]:
    processor = processor_of(family)
    return CausalLanguageModel(vision_language_model(family), forward=PackedForward(processor)), processor


@pytest.mark.parametrize("max_tokens", [1000, 60])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_images_give_the_models_own_log_probabilities(family: str, max_tokens: int) -> None:
    policy, processor = policy_of(family)
    rows = mixed(processor)
    with torch.no_grad():
        found = packed(policy, pack(rows, max_tokens, CPU))
        for i, row in enumerate(rows):
            torch.testing.assert_close(found[i], own(policy.module, row, processor), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_images_give_the_models_own_gradients(family: str) -> None:
    policy, processor = policy_of(family)
    rows = mixed(processor)
    gradients = []
    for found in (
        packed(policy, pack(rows, 1000, CPU)),
        {i: own(policy.module, row, processor) for i, row in enumerate(rows)},
    ):
        policy.module.zero_grad()
        sum(((0.1 + i) * found[i]).sum() for i in found).backward()  # type: ignore[union-attr]
        gradients.append({name: parameter.grad for name, parameter in policy.module.named_parameters()})
    for name, gradient in gradients[1].items():
        assert gradient is not None, name
        mine, scale = gradients[0][name], float(gradient.abs().max())
        assert mine is not None
        torch.testing.assert_close(mine, gradient, atol=max(scale * 1e-4, 1e-7), rtol=1e-3, msg=name)


def test_an_image_of_several_sequences_is_packed_once() -> None:
    processor = ImageProcessor()
    (batch,) = pack(mixed(processor), 1000, CPU)
    assert batch.images is not None
    assert batch.images.grids == ((2, 3), (2, 2), (4, 1))
    assert len(batch.images.encoded) == 3
    assert len(batch.images.places_K) == 6 + 4 + 6 + 6 + 4
    assert (batch.token_ids_1N[0, batch.images.places_K] == IMAGE).all()
    assert int((batch.token_ids_1N == IMAGE).sum()) == len(batch.images.places_K)


def test_micro_batches_without_images_have_no_rotary_positions() -> None:
    (batch,) = pack([sequence([9], processor=ImageProcessor())], 1000, CPU)
    assert batch.images is None
    assert batch.rotary_3N is None


def test_visual_tokens_count_in_the_budget_of_a_micro_batch() -> None:
    rows = [sequence([2, (seed, 4, 5), 4], processor=ImageProcessor(), seed=seed) for seed in range(4)]
    assert [len(batch.token_ids_1N[0]) for batch in pack(rows, 50, CPU)] == [50, 50]
    assert [len(batch.token_ids_1N[0]) for batch in pack(rows, 49, CPU)] == [25] * 4


def test_a_sequence_without_the_bytes_of_its_image_is_rejected() -> None:
    row = sequence([2, (1, 2, 2), 4], processor=ImageProcessor())
    row.images.clear()  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="bytes of every image"):
        pack([row], 100, CPU)


def test_an_image_of_another_size_than_its_span_is_rejected() -> None:
    policy, processor = policy_of("qwen2_5_vl")
    row = sequence([2, (1, 2, 3), 4], processor=processor)
    name = row.media[0].sha256
    row.images[name] = picture(4 * 28, 2 * 28, 1)  # type: ignore[index]
    with pytest.raises(DataError, match="visual tokens"):
        packed(policy, pack([row], 100, CPU))


def test_a_text_model_refuses_images(qwen2: Any) -> None:
    (batch,) = pack([sequence([2, (1, 2, 2), 4], processor=ImageProcessor())], 100, CPU)
    for forward in (PackedForward(), PlainForward()):
        with pytest.raises(UserError, match="vision-language"):
            packed(CausalLanguageModel(qwen2(), forward=forward), [batch])


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_rows_are_chosen_for_vision_language_models(family: str, tmp_path: Path) -> None:
    processor = processor_of(family)
    Qwen2VLImageProcessor(patch_size=processor.patch_size).save_pretrained(tmp_path)
    forward = choose_forward(vision_language_model(family), tmp_path)
    assert isinstance(forward, PackedForward)
    assert forward.processor is not None
    assert forward.processor.patch_size == processor.patch_size


def test_a_vision_language_model_without_its_processor_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="image processor"):
        choose_forward(vision_language_model("qwen2_5_vl"), tmp_path)


def test_a_processor_with_other_patches_than_the_model_is_rejected(tmp_path: Path) -> None:
    Qwen2VLImageProcessor(patch_size=16).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="same patches"):
        choose_forward(vision_language_model("qwen2_5_vl"), tmp_path)


def test_a_weight_of_the_tower_has_the_gradient_of_finite_differences() -> None:
    policy, processor = policy_of("qwen2_5_vl")
    policy.module.double()
    rows = mixed(processor)
    (batch,) = pack(rows, 1000, CPU)
    weight = policy.module.model.visual.blocks[1].mlp.up_proj.weight.view(-1)
    leaf = policy.module.model.visual.blocks[1].mlp.up_proj.weight

    def loss() -> Tensor:
        with policy.computing():
            return policy.evaluate(batch)[0].sum()

    loss().backward()  # type: ignore[no-untyped-call]
    gradient = leaf.grad.view(-1)
    largest, step = int(gradient.abs().argmax()), 0.3  # parts of the model are computed in float32
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            weight[largest] += sign * step
            values.append(float(loss()))
            weight[largest] -= sign * step
    assert float(gradient[largest]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-2)


def test_only_sampled_tokens_receive_gradient() -> None:
    processor = ImageProcessor()
    rows = mixed(processor)
    trained = [(i, t) for i, row in enumerate(rows) for t, own in enumerate(row.loss_mask) if own]
    (batch,) = pack(rows, 1000, CPU)
    found = [(i, int(target)) for i, target in zip(batch.sequence_M.tolist(), batch.targets_M.tolist(), strict=True)]
    assert sorted(found) == sorted((i, rows[i].token_ids[t]) for i, t in trained)
    assert IMAGE not in batch.targets_M.tolist()


def test_a_frozen_tower_gets_no_gradient_and_keeps_no_graph() -> None:
    policy, processor = policy_of("qwen3_vl")
    policy.module.model.visual.requires_grad_(False)
    found = packed(policy, pack(mixed(processor), 1000, CPU))
    sum(each.sum() for each in found.values()).backward()  # type: ignore[union-attr]
    assert all(each.grad is None for each in policy.module.model.visual.parameters())
    assert policy.module.model.language_model.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_policy_loads_with_its_processor(family: str, tmp_path: Path) -> None:
    folder = vision_folder(tmp_path / "start", family)
    policy = CausalLanguageModel.load(folder, dtype="auto", device=CPU)
    row = mixed(processor_of(family))[1]
    (tmp_path / "saved").mkdir()
    policy.save(tmp_path / "saved")
    again = CausalLanguageModel.load(tmp_path / "saved", dtype="auto", device=CPU)
    with torch.no_grad():
        first, second = (packed(one, pack([row], 100, CPU))[0] for one in (policy, again))
    assert torch.equal(first, second)
    assert ImageProcessor.of_folder(tmp_path / "saved") == ImageProcessor.of_folder(folder)


def test_an_unsupported_vision_language_model_is_refused_by_name(tmp_path: Path) -> None:
    folder = vision_folder(tmp_path, "qwen2_vl")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="LlavaForConditionalGeneration"):
        CausalLanguageModel.load(folder, dtype="auto", device=CPU)
