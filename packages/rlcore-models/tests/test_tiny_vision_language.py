from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw
from pydantic import ValidationError
from rlcore.images import ImageProcessor
from rlcore_models.builtin.config import TinyQwen3VLConfig, TinyQwen25VLConfig
from rlcore_models.builtin.tiny_qwen_vl import build_qwen3, build_qwen25
from rlcore_models.builtin.tokenizer import SPECIAL, VISION
from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

TEXTS = [f"Which colour is the circle? red blue green {n}" for n in range(300)]
BUILDERS: dict[str, tuple[Callable[..., None], type[Any]]] = {
    "Qwen2_5_VL": (build_qwen25, TinyQwen25VLConfig),
    "Qwen3VL": (build_qwen3, TinyQwen3VLConfig),
}
QUESTION = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Which colour?<|im_end|>\n"


@pytest.fixture(scope="module", params=BUILDERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / request.param
    return built(path, request.param)


def built(path: Path, family: str, seed: int = 0, **options: Any) -> Path:
    build, config = BUILDERS[family]
    build(path, TEXTS, seed, config(**options))
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def picture(width: int = 150, height: int = 90) -> Image.Image:
    image = Image.new("RGB", (width, height), (128, 128, 128))
    ImageDraw.Draw(image).ellipse((20, 20, 60, 60), fill=(255, 0, 0))
    return image


@pytest.mark.parametrize("family", BUILDERS)
def test_same_seed_and_texts_give_the_same_bytes(family: str, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        built(tmp_path / name, family, seed)
    assert torch.equal(state, torch.random.get_rng_state()), "building must not touch the global random numbers"
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    differing = {name for name, data in files_of(tmp_path / "a").items() if data != files_of(tmp_path / "c")[name]}
    assert differing == {"model.safetensors"}


def test_transformers_loads_model_and_processor(folder: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder)
    model, loaded = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == f"{folder.name}ForConditionalGeneration"
    assert type(processor).__name__ == f"{folder.name}Processor"
    assert not any(loaded.values())
    assert 300_000 < model.num_parameters() < 500_000
    assert model.config.text_config.vocab_size == len(processor.tokenizer)
    given = processor(text=[QUESTION], images=[picture()], return_tensors="pt")
    with torch.no_grad():
        logits, blank = (
            model(**(given | {"pixel_values": pixels})).logits[0, -1]
            for pixels in (given["pixel_values"], torch.zeros_like(given["pixel_values"]))
        )
    assert torch.isfinite(logits).all()
    assert not torch.allclose(logits, blank), "the answer must depend on the image"


def test_the_processor_counts_visual_tokens_as_rlcore_does(folder: Path) -> None:
    processor, own = AutoProcessor.from_pretrained(folder), ImageProcessor.of_folder(folder)
    assert own is not None
    for size in ((150, 90), (20, 20), (700, 500)):
        ids = processor(text=[QUESTION], images=[picture(*size)])["input_ids"][0]
        rows, columns = own.tokens(*size)
        assert ids.count(processor.image_token_id) == rows * columns


def test_grey_becomes_zero(folder: Path) -> None:
    own = ImageProcessor.of_folder(folder)
    assert own is not None
    assert [(127.5 / 255 - mean) / std for mean, std in zip(own.mean, own.std, strict=True)] == [0, 0, 0]


def test_the_template_renders_images_where_they_are(folder: Path) -> None:
    image, text = {"type": "image"}, {"type": "text", "text": "Which colour?"}
    messages = [{"role": "system", "content": "Look."}, {"role": "user", "content": [image, text, image]}]
    shown = "<|vision_start|><|image_pad|><|vision_end|>"
    expected = f"<|im_start|>system\nLook.<|im_end|>\n<|im_start|>user\n{shown}Which colour?{shown}<|im_end|>\n"
    for renderer in (AutoProcessor.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)):
        found = renderer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert found == expected + "<|im_start|>assistant\n"


def test_marks_of_images_are_single_special_tokens(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = AutoModelForImageTextToText.from_pretrained(folder).config
    for token in (*SPECIAL, *VISION):
        assert tokenizer.tokenize(token) == [token]
        assert token in tokenizer.all_special_tokens or tokenizer.added_tokens_decoder[tokenizer.vocab[token]].special
    ids = (config.vision_start_token_id, config.vision_end_token_id, config.image_token_id, config.video_token_id)
    assert tuple(tokenizer.convert_ids_to_tokens(ids)) == VISION


@pytest.mark.parametrize("family", BUILDERS)
def test_limits_of_pixels_are_those_of_the_options(family: str, tmp_path: Path) -> None:
    own = ImageProcessor.of_folder(built(tmp_path / "model", family, min_pixels=5000, max_pixels=20_000))
    assert own is not None
    assert (own.min_pixels, own.max_pixels) == (5000, 20_000)


@pytest.mark.parametrize("family", BUILDERS)
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 60}, "width"),
        ({"vision_width": 50}, "vision_width"),
        ({"heads": 4, "key_value_heads": 3}, "key_value_heads"),
        ({"min_pixels": 10_000, "max_pixels": 5000}, "min_pixels"),
        ({"max_pixels": 700}, "max_pixels"),
        ({"layers": 0}, "layers"),
        ({"width": 65536, "layers": 900}, "parameters"),
        ({"vision_width": 32768, "vision_layers": 10}, "parameters"),
        ({"patch": 14}, "patch"),
    ],
)
def test_options_that_do_not_fit_are_rejected(family: str, options: dict[str, int], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        BUILDERS[family][1](**options)


def test_deepstack_needs_as_many_layers() -> None:
    with pytest.raises(ValidationError, match="deepstack"):
        TinyQwen3VLConfig(deepstack=3)
    assert TinyQwen3VLConfig(deepstack=0).deepstack == 0
