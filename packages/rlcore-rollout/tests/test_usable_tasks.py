"""Tasks that the model cannot see are removed before a run, and models that cannot see images are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from image_files import animation, huge, picture
from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from rlcore.session.datasets import usable_tasks
from rlcore.session.session import RunSession
from rlcore.types import ImagePart, Message, Observation, Step, Task, TextPart
from rlcore_rollout.chat.plain import PlainFormat

HERE = __file__
PROCESSOR = ImageProcessor(min_pixels=28 * 28, max_pixels=28 * 28 * 100)
PLUGIN = """
from rlcore.hookspecs import hookimpl
from rlcore.specs import EnvironmentSpec

class Environment:
    async def reset(self, task, *, seed): ...
    async def step(self, action): ...
    async def close(self): ...

@hookimpl
def rlcore_environments():
    yield EnvironmentSpec(id="pictures", target="pictures_rl:Environment", modalities=frozenset({"text", "image"}))
"""


def task(text: str, *images: bytes) -> Task:
    parts = tuple(ImagePart.of(data) for data in images)
    message = Message(role="user", content=(TextPart(text=text), *parts))
    return Task(id=text[:9], messages=(message,), images=images)


def words(count: int) -> str:
    return " ".join("apples" for _ in range(count))


class Asks:
    """Shows the messages of the task, and ends after one answer."""

    async def reset(self, task: Task, *, seed: int) -> Observation:
        return Observation(messages=task.messages)

    async def step(self, action: Message) -> Step:
        return Step(observation=Observation(messages=()), terminated=True)

    async def close(self) -> None:
        """Nothing to free."""


class Tasks:
    """Two questions, one of them long."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [task("short"), task(words(200))]


class Pictures:
    """A question with a picture."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [task("what?", picture(56, 56))]


def right(trajectory: Any, task: Task) -> float:
    return 1.0


@pytest.fixture
def chat(tiny_folder: Path) -> PlainFormat:
    return PlainFormat(tiny_folder, images=PROCESSOR)


def test_prompts_with_images_have_exactly_the_counted_length(chat: PlainFormat) -> None:
    original = picture(301, 190)
    one = task("what?", original, picture(56, 28, "blue"), original)
    fitted = [PROCESSOR.fit(data) for data in one.images]
    length = len(chat.prompt_with_images(task("what?", *fitted).messages, (), {
        part.sha256: data for data in fitted for part in [ImagePart.of(data)]
    })[0])  # fmt: skip
    assert usable_tasks([one], chat, length).tasks == [one]
    found = usable_tasks([one], chat, length - 1)
    assert (found.tasks, found.skipped) == ([], {f"a prompt of more than {length - 1} tokens": 1})


def test_pixels_are_not_decoded_to_count_an_image(chat: PlainFormat) -> None:
    cut = picture(280, 280)[:60]
    assert usable_tasks([task("what?", cut)], chat, 1000).skipped == {}


def test_unusable_tasks_are_counted_by_reason(chat: PlainFormat) -> None:
    tasks = [task("good"), task("wide", picture(900, 2)), *(task(f"a{n}", animation()) for n in range(2))]
    tasks += [task("huge", huge()), task("bad", b"no image"), task(words(200)), task("fine", picture(28, 28))]
    tasks.append(Task(id="none", messages=task("", b"missing").messages))
    found = usable_tasks(tasks, chat, 100)
    assert [one.id for one in found.tasks] == ["good", "fine"]
    assert sorted(found.skipped.values()) == [1, 1, 1, 1, 1, 2]
    lines = "\n".join(found.lines("train"))
    assert "skipped   2 tasks in data.train: an image must have one frame" in lines
    assert "skipped   1 task in data.train: a prompt of more than 100 tokens" in lines
    for reason in ("at most 200 times", "at most 100,000,000 pixels", "readable PNG", "does not have"):
        assert reason in lines


def test_texts_are_not_rendered_without_a_limit(chat: PlainFormat) -> None:
    tasks = [task("a"), task("b")]
    assert usable_tasks(tasks, None, None).tasks is tasks


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where this package is installed without the trainer."""
    monkeypatch.setenv("RLCORE_DISABLE_PLUGINS", "trainer")


def session(
    folder: Path, environment: str = f"{HERE}:Asks", chat_format: str = "plain", data: str = "Tasks", **rollout: Any
) -> RunSession:
    values = {
        "model": {"path": str(folder), "chat_format": chat_format},
        "environment": {"id": environment},
        "data": {"id": f"{HERE}:{data}"},
        "reward": [{"id": f"{HERE}:right"}],
        "rollout": {"engine": "scripted", "scripted": {"replies": ["x"]}, **rollout},
    }
    return RunSession.create(values, purpose="evaluation")


def test_run_removes_long_tasks_and_prints_their_number(
    alone: None, model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = session(model_folder, max_prompt_tokens=100)
    assert [one.id for one in run.usable_tasks("train")] == ["short"]
    assert run.usable_tasks("train") is run.usable_tasks("train")
    printed = capsys.readouterr().out
    assert printed.count("skipped   1 task in data.train: a prompt of more than 100 tokens") == 1
    assert len(session(model_folder).usable_tasks("train")) == 2


def test_no_usable_task_is_an_error(alone: None, model_folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        session(model_folder, max_prompt_tokens=2).usable_tasks("evaluation")
    assert "no task of data.evaluation can be used" in str(caught.value)
    assert "2 x a prompt of more than 2 tokens" in str(caught.value)
    assert "set a higher rollout.max_prompt_tokens" in str(caught.value)


@pytest.fixture
def pictures(alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of an installed environment that states images among its modalities."""
    site = tmp_path / "site"
    info = site / "pictures_rl-0.1.dist-info"
    info.mkdir(parents=True)
    (site / "pictures_rl.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pictures-rl\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[rlcore.plugins]\npictures = pictures_rl\n")
    monkeypatch.syspath_prepend(str(site))
    yield "pictures"
    sys.modules.pop("pictures_rl", None)


@pytest.fixture
def model_folder(make_folder: Callable[..., Path]) -> Path:
    """A folder of a text model, whose weights would be rejected when they are loaded."""
    folder = make_folder()
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    config(folder, "config.json", model_type="qwen2")
    return folder


def config(folder: Path, name: str, **values: Any) -> None:
    (folder / name).write_text(json.dumps(values), encoding="utf-8")


VISION = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}


@pytest.mark.parametrize(
    ("model", "processor", "expected"),
    [
        (
            {"model_type": "qwen2_5_vl", "vision_config": VISION},
            {"image_processor_type": "CLIPImageProcessor"},
            "images need the processor of Qwen2-VL",
        ),
        ({"model_type": "qwen2"}, None, "images need a model of the families"),
        ({"model_type": "llava", "vision_config": VISION}, {}, "images need a model of the families"),
        ({"model_type": "qwen2_5_vl", "vision_config": VISION}, None, "has no image processor"),
        ({"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 16}}, {}, "belongs to another model"),
        (
            {"model_type": "qwen2_5_vl", "vision_config": VISION, "image_token_id": 3},
            {},
            "tokenizer belongs to another",
        ),
    ],
    ids=["processor type", "text model", "other family", "processor missing", "sizes", "tokenizer"],
)
def test_model_that_cannot_see_images_is_refused_before_its_weights(
    pictures: str,
    model_folder: Path,
    model: dict[str, Any],
    processor: dict[str, Any] | None,
    expected: str,
) -> None:
    config(model_folder, "config.json", **{"image_token_id": 1, **model})
    if processor is not None:
        config(model_folder, "preprocessor_config.json", **processor)
    with pytest.raises(UserError, match=expected):
        session(model_folder, pictures).usable_tasks("train")


def test_tasks_with_images_need_a_model_that_sees_them(alone: None, model_folder: Path) -> None:
    with pytest.raises(UserError, match="images need a model of the families") as caught:
        session(model_folder, data="Pictures").usable_tasks("train")
    assert caught.value.found == "a text model, model_type 'qwen2'"
    assert "such as Qwen/Qwen2.5-VL-3B-Instruct or builtin:" in str(caught.value.fix)
    vision_model(model_folder)
    assert len(session(model_folder, data="Pictures").usable_tasks("train")) == 1


@pytest.mark.parametrize(("of_model", "of_run"), [(30, None), (10_000, 30)])
def test_prompts_with_images_that_fill_the_context_are_removed(
    of_model: int, of_run: int | None, alone: None, model_folder: Path
) -> None:
    vision_model(model_folder, max_position_embeddings=of_model)
    length = {} if of_run is None else {"max_context_tokens": of_run}
    assert len(session(model_folder, data="Pictures", **length).usable_tasks("train")) == 1
    with pytest.raises(UserError, match="can be used") as caught:
        session(model_folder, data="Pictures", **length | {"max_prompt_tokens": 5}).usable_tasks("train")
    assert "set a higher rollout.max_prompt_tokens" in str(caught.value.fix)
    vision_model(model_folder, max_position_embeddings=5)
    with pytest.raises(UserError, match="can be used") as caught:
        session(model_folder, data="Pictures", **length).usable_tasks("train")
    assert caught.value.found == "1 x a prompt of more than 4 tokens"
    assert "lower model.images.max_pixels" in str(caught.value.fix)


def vision_model(folder: Path, **values: Any) -> None:
    placeholder = PlainFormat(folder).tokenizer.added["<|image_pad|>"]
    config(folder, "config.json", model_type="qwen2_5_vl", vision_config=VISION, image_token_id=placeholder, **values)
    config(folder, "preprocessor_config.json")


def test_vision_model_is_accepted_with_a_format_for_images_alone(pictures: str, model_folder: Path) -> None:
    vision_model(model_folder)
    assert len(session(model_folder, pictures).usable_tasks("train")) == 2
    template = "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
    config(model_folder, "tokenizer_config.json", chat_template=template)
    with pytest.raises(UserError, match="cannot show images with this model folder"):
        session(model_folder, pictures, chat_format="template").usable_tasks("train")


def test_unsupported_processor_does_not_matter_without_images(alone: None, model_folder: Path) -> None:
    config(model_folder, "preprocessor_config.json", image_processor_type="CLIPImageProcessor")
    assert [one.id for one in session(model_folder, max_prompt_tokens=100).usable_tasks("train")] == ["short"]
