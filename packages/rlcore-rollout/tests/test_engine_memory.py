"""The estimated memory of the torch engine for tasks with pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from rlcore.models.shape import shape_of_folder
from rlcore.session.session import RunSession
from rlcore.specs import MemoryNeeds, ModelOnDevice
from rlcore.types import ImagePart, Message, Observation, Step, Task, TextPart
from rlcore_rollout.engines.memory import torch_memory
from vision_folders import MOST_TOKENS, Family, picture, vision_folder

HERE = __file__
LARGE, SMALL = picture(1000, 1000, 0), picture(56, 112, 1)
"""Reduced to the limit of tokens, and with 4 rows of 2 tokens."""


class Look:
    async def reset(self, task: Task, *, seed: int) -> Observation:
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        return Step(terminated=True)

    async def close(self) -> None: ...


class Texts:
    images: tuple[bytes, ...] = ()

    def tasks(self, split: str) -> Sequence[Task]:
        parts = (TextPart(text="what is it?"), *map(ImagePart.of, self.images))
        message = Message(role="user", content=parts)
        return [Task(id="with", messages=(message,), images=self.images), Task(id="w", messages=())]


class Pictures(Texts):
    images = (LARGE, SMALL)


class Damaged(Texts):
    images = (SMALL, b"no picture")


def right() -> float:
    return 1.0


def needs(folder: Path, tasks: str, monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryNeeds, ModelOnDevice]:
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")
    values = {
        "model": {"path": str(folder), "chat_format": "plain"},
        "environment": {"id": f"{HERE}:Look"},
        "data": {"id": f"{HERE}:{tasks}"},
        "reward": [{"id": f"{HERE}:right"}],
        "rollout": {"engine": "torch", "torch": {"slots": 8}, "group_size": 2},
        "evaluation": {"tasks": 10},
    }
    model = ModelOnDevice(shape=shape_of_folder(folder), element_bytes=4)
    return torch_memory(RunSession.create(values, purpose="evaluation"), model), model


@pytest.mark.parametrize(("family", "layers"), [("qwen2_5_vl", 1), ("qwen3_vl", 2)])
def test_estimate_has_the_cache_and_features_of_images(
    family: Family, layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vision_folder(tmp_path, family)
    text, model = needs(folder, "Texts", monkeypatch)
    seen, _ = needs(folder, "Pictures", monkeypatch)
    visual, shape = MOST_TOKENS + 8, model.shape
    more = seen.phases["rollout"]["KV cache"] - text.phases["rollout"]["KV cache"]
    assert more == pytest.approx((10 + 8) * visual * 2 * shape.layers * shape.key_width * 4, rel=0.05)
    features = 8 * visual * shape.width * layers * 4
    assert "image features" not in text.phases["rollout"]
    assert features < seen.phases["rollout"]["image features"] < features + 2**26


def test_estimate_skips_images_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimate, _ = needs(vision_folder(tmp_path), "Damaged", monkeypatch)
    assert estimate.phases["rollout"]["image features"] > 0
