"""The view of a prompt with images that vLLM gets. With the real vLLM: tests/end_to_end/test_vllm_images.py."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore.errors import EngineError, UserError
from rlcore.images import ImageProcessor
from rlcore.models.vision_language import VisionLanguageModel
from rlcore.models.weights import FolderWeights
from rlcore.types import FrozenDict, MediaSpan, Prompt, TokenIds
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig

pytest.importorskip("torch")
pytest.importorskip("transformers")

from vision_folders import picture, prompt_of, vision_folder

PAD, START, END = 318, 316, 317


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def images(folder: Path) -> Any:
    from rlcore_rollout.engines.vllm.images import ImageInput

    model = VisionLanguageModel.of_folder(folder)
    assert model is not None
    return ImageInput(model, VllmEngineConfig(max_images=2))


def test_request_has_one_placeholder_for_each_image(folder: Path, images: Any) -> None:
    prompt = prompt_of(folder, [[1, 2], picture(112, 84, 0), [3], picture(56, 28, 1), [4, 5]])
    assert [span.length for span in prompt.media] == [12, 2]
    request = images.request(prompt)
    assert request["prompt_token_ids"] == [1, 2, START, PAD, END, 3, START, PAD, END, 4, 5]
    assert [image.size for image in request["multi_modal_data"]["image"]] == [(112, 84), (56, 28)]
    assert request["multi_modal_uuids"]["image"] == [span.sha256 for span in prompt.media]


def test_adjacent_images_and_a_last_image_are_collapsed() -> None:
    from rlcore_rollout.engines.vllm.images import collapsed

    spans = [MediaSpan(sha256="a", offset=0, length=3), MediaSpan(sha256="b", offset=3, length=1)]
    spans.append(MediaSpan(sha256="c", offset=6, length=2))
    assert collapsed([9, 9, 9, 9, 1, 2, 9, 9], spans) == [9, 9, 1, 2, 9]
    assert collapsed([1, 9, 2], []) == [1, 9, 2]


def test_too_many_images_name_the_key(folder: Path, images: Any) -> None:
    with pytest.raises(EngineError, match=r"3 images, but vLLM accepts 2; set rollout\.vllm\.max_images"):
        images.request(prompt_of(folder, [picture(28, 28, place) for place in range(3)]))


def broken(prompt: Prompt, what: str) -> Prompt:
    span = prompt.media[0]
    if what == "bytes":
        return dataclasses.replace(prompt, images=FrozenDict())
    if what == "size":
        return dataclasses.replace(prompt, images=FrozenDict({span.sha256: picture(84, 84, 9)}))
    if what == "grid":
        return dataclasses.replace(prompt, media=(dataclasses.replace(span, rows=span.columns, columns=span.rows),))
    if what == "damaged":
        return dataclasses.replace(prompt, images=FrozenDict({span.sha256: b"no image"}))
    if what == "end":
        return dataclasses.replace(prompt, media=(dataclasses.replace(span, offset=len(prompt) - 1),))
    ids = prompt.token_ids.tolist()
    ids[span.offset + 1] = 7
    return dataclasses.replace(prompt, token_ids=TokenIds(ids))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("bytes", "lacks the bytes of its image"),
        ("size", "must be fitted to 112 x 84 pixels, found 84 x 84"),
        ("grid", "must be fitted to 84 x 112 pixels, found 112 x 84"),
        ("damaged", "must be a readable PNG"),
        ("token", "of an image must be 318"),
        ("end", "of an image must be 318"),
    ],
)
def test_misaligned_image_is_an_error(folder: Path, images: Any, what: str, sentence: str) -> None:
    prompt = prompt_of(folder, [[1, 2], picture(112, 84, 0), [3]])
    images.request(prompt)
    with pytest.raises(EngineError, match=sentence):
        images.request(broken(prompt, what))


@pytest.mark.parametrize(("reported", "place"), [([1, 2, 9], 2), ([1, 2], 2), ([1, 2, 3, 4], 3)])
def test_other_tokens_in_vllm_are_an_error(reported: list[int], place: int) -> None:
    from rlcore_rollout.engines.vllm.images import check_expanded

    check_expanded([1, 2, 3], SimpleNamespace(prompt_token_ids=[1, 2, 3]))
    with pytest.raises(EngineError, match=f"{len(reported)} tokens instead of 3, different from position {place} on"):
        check_expanded([1, 2, 3], SimpleNamespace(prompt_token_ids=reported))


def test_limits_of_the_run_reach_vllm(folder: Path) -> None:
    from rlcore_rollout.engines.vllm.images import ImageInput

    model = VisionLanguageModel.of_folder(folder)
    assert model is not None
    processor = ImageProcessor.of_folder(folder, min_pixels=2000, max_pixels=90_000)
    arguments = ImageInput(model, VllmEngineConfig(max_images=5, image_cache_gib=0.1), processor).arguments
    assert arguments["limit_mm_per_prompt"] == {"image": 5, "video": 0}
    assert arguments["mm_processor_kwargs"]["size"] == {"shortest_edge": 2000, "longest_edge": 90_000}
    assert arguments["mm_processor_cache_gb"] == 0.1


@pytest.mark.parametrize(
    ("file", "change", "sentence"),
    [
        ("preprocessor_config.json", None, "has no image processor"),
        ("preprocessor_config.json", {"patch_size": 16}, "belongs to another model"),
        ("config.json", {"image_token_id": "pad"}, "image_token_id"),
    ],
)
def test_engine_rejects_a_folder_without_its_processor(
    folder: Path, tmp_path: Path, file: str, change: dict[str, Any] | None, sentence: str
) -> None:
    from rlcore_rollout.engines.vllm.engine import VllmEngine

    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    place = tmp_path / file
    if change is None:
        place.unlink()
    else:
        place.write_text(json.dumps(json.loads(place.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(UserError, match=sentence):
        VllmEngine(VllmEngineConfig(), FolderWeights(folder=tmp_path), EngineContext())
