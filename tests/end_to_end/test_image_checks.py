"""A run with images is checked before anything loads: its model, and the number of images that its engine accepts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rlcore.checks import Finding
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.session.model_inputs import check_images
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession
from rlcore.types import ImagePart, Message, Task, TextPart
from vision_folders import picture, vision_folder


@dataclass(frozen=True)
class Rows:
    """A dataset of tasks with the given numbers of images."""

    counts: Sequence[int]

    def tasks(self, split: str) -> Sequence[Task]:
        return [self._task(place, count) for place, count in enumerate(self.counts)]

    def _task(self, place: int, count: int) -> Task:
        images = tuple(picture(28, 28, seed) for seed in range(count))
        content = (TextPart(text="What is there?"), *map(ImagePart.of, images))
        return Task(id=f"row-{place}", messages=(Message(role="user", content=content),), images=images)


def checked(folder: Path, counts: Sequence[int], **engine: Any) -> list[Finding]:
    values = {
        "model": {"path": str(folder), "images": {"max_pixels": 40 * 28 * 28}},
        "environment": {"id": "gsm8k-tools"},
        "reward": [{"id": "math-numeric-equal"}],
        "data": {"train": "generated", "evaluation": "generated"},
        "rollout": {"engine": "vllm", "vllm": engine},
    }
    registry = Registry()
    run = RunSession(RunPlan.of(values, registry=registry), registry, dataset=Rows(counts))
    return list(check_images(run, ["train"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("model"))


def test_vision_language_model_is_recognised(folder: Path) -> None:
    note = "the model is a Qwen2.5-VL, which sees an image as 1 to 40 tokens (model.images)"
    assert checked(folder, [0, 0]) == checked(folder, [0, 2]) == [Finding(status="ok", text=note)]


def test_more_images_than_the_engine_accepts_are_rejected(folder: Path) -> None:
    assert [one.status for one in checked(folder, [1, 3], max_images=3)] == ["ok"]
    (found,) = checked(folder, [1, 3], max_images=2)
    assert (found.status, found.key) == ("fail", "rollout.vllm.max_images")
    assert found.text == "the engine accepts 2 images in a prompt: the task 'row-1' has 3"
    assert "rollout.vllm.max_images=3" in found.fix


def test_tasks_with_images_need_a_model_that_reads_them(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "llava"}), encoding="utf-8")
    assert checked(tmp_path, [0]) == []
    with pytest.raises(UserError, match="images need a model of the families") as raised:
        checked(tmp_path, [1])
    assert raised.value.found == "a vision-language model, model_type 'llava'"


def test_missing_image_processor_is_reported(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.name != "preprocessor_config.json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert checked(tmp_path, [0]) == []
    with pytest.raises(UserError, match="VL model has no image processor"):
        checked(tmp_path, [1])
