"""Generated pictures and questions, and files of rows."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rl_plugin_visual_cot.config import DataConfig, EnvironmentConfig
from rl_plugin_visual_cot.dataset import VisualCotData, conversation
from rl_plugin_visual_cot.environment import VisualCot
from rl_plugin_visual_cot.grammar import parse
from rl_plugin_visual_cot.matching import concludes_with
from rl_plugin_visual_cot.prompts import INSTRUCTION
from rl_plugin_visual_cot.questions import DESCRIPTION, KINDS, chance
from rl_plugin_visual_cot.rewards import judge
from rl_plugin_visual_cot.scenes import BACKGROUND, COLORS, SHAPES, SIDE, picture
from rlcore import DataError, ImagePart, Task, TextPart
from rlcore.images import encode_image, image_size
from rlcore.images.encoding import decode_image

DATA = os.environ.get("RLCORE_DATA")
ROW = {"imageId": "1", "instruction": "What is it?", "cot": [{"text": "It is a cat."}], "answer": "Cat"}


def tasks(split: str = "train", **options: Any) -> Sequence[Task]:
    return VisualCotData(DataConfig(**{"questions": 600, "held_out": 200} | options)).tasks(split)


def test_same_seed_gives_the_same_pictures_and_questions() -> None:
    assert tasks() == tasks()
    assert tasks()[0] != tasks(drawn_seed=1)[0]
    assert tasks()[:50] == tasks(questions=50)


def test_text_alone_gives_chance() -> None:
    count = 1500
    for split, objects in (("train", 3), ("evaluation", 3), ("train", 1), ("evaluation", 4)):
        answers: dict[str, Counter[str]] = defaultdict(Counter)
        for task in tasks(split, objects=objects, questions=count, held_out=count):
            answers[task.messages[-1].text][task.fields["answer"]] += 1
        best = sum(counts.most_common(1)[0][1] for counts in answers.values()) / count
        assert best <= chance(KINDS, objects) + 0.03


def test_other_objects_can_be_left_out_except_for_counts() -> None:
    numbers: dict[str, set[int]] = defaultdict(set)
    for task in tasks(others=0, questions=200):
        asked = "count" if "How many" in task.messages[-1].text else "other"
        numbers[asked].add(objects_in(task.images[0]))
    assert numbers == {"count": {1, 2, 3}, "other": {1}}
    assert max(objects_in(task.images[0]) for task in tasks(others=1, kinds=["color"], questions=100)) == 2


def test_kinds_are_equally_frequent_and_selectable() -> None:
    words = {
        "color": "What color",
        "shape": "Which shape",
        "corner": "which corner",
        "count": "How many",
        "exists": "there a",
    }
    counts = {kind: sum(word in task.messages[-1].text for task in tasks()) for kind, word in words.items()}
    assert set(counts.values()) == {120}
    assert all("What color" in task.messages[-1].text for task in tasks(kinds=["color"], questions=40))


def test_held_out_objects_are_at_pixels_where_training_has_none() -> None:
    for objects in (1, 3):
        train, held_out = (
            {place for task in tasks(split, objects=objects, questions=800) for place in places(task.images[0])}
            for split in ("train", "evaluation")
        )
        assert not train & held_out
        assert len(train) > 2 * len(held_out) > 100
    assert not {task.images for task in tasks()} & {task.images for task in tasks("evaluation")}


def places(data: bytes) -> Iterator[tuple[int, int]]:
    """The left upper pixel of each object."""
    image, half = decode_image(data), SIDE // 2
    for left, top in ((0, 0), (half, 0), (0, half), (half, half)):
        part = image.crop((left, top, left + half, top + half))
        if part.getcolors(1) is None:
            x, y, _, _ = bounds(part)
            yield left + x, top + y


def bounds(part: Any) -> tuple[int, int, int, int]:
    from PIL import Image, ImageChops

    box = ImageChops.difference(part, Image.new("RGB", part.size, BACKGROUND)).getbbox()
    assert box is not None
    return box


def test_blank_pictures_have_the_size_of_the_original() -> None:
    (image,) = {task.images[0] for task in tasks(blank=True)}
    assert image_size(image) == (SIDE, SIDE)
    assert decode_image(image).getcolors() == [(SIDE * SIDE, BACKGROUND)]
    assert image == encode_image(decode_image(picture(())))


def test_generated_demonstrations_guess_as_often_as_configured() -> None:
    def guessed(guesses: float) -> float:
        """The fraction of wrong answers about the number of objects, which can be counted in the picture."""
        options: dict[str, Any] = {"kinds": ["count"], "guesses": guesses, "system_prompt": ""}
        shown = VisualCotData(DataConfig(**options)).demonstrations(400, seed=0)
        wrong = 0
        for one in shown:
            verdict = judge(one.messages[-1].text, ("one", "two", "three")[objects_in(one.images[0]) - 1])
            assert verdict.parsed.well_formed
            assert verdict.consistent
            wrong += not verdict.correct
        return wrong / 400

    assert guessed(0.0) == 0
    assert 0.55 < guessed(1.0) < 0.78


def test_demonstrations_describe_pictures_as_often_as_configured() -> None:
    def described(fraction: float) -> float:
        config = DataConfig(descriptions=fraction, guesses=1.0, others=0, kinds=["color"], system_prompt="")
        shown = list(VisualCotData(config).demonstrations(400, seed=0))
        descriptions = [one.messages for one in shown if DESCRIPTION in one.messages[0].text]
        for messages in descriptions:
            answer = parse(messages[1].text).answer.lower()
            assert answer.split()[0] in COLORS
            assert answer.split()[1] in SHAPES
            assert concludes_with(parse(messages[1].text).think, answer)
        return len(descriptions) / 400

    assert described(0.0) == 0
    assert 0.4 < described(0.5) < 0.6
    assert all(DESCRIPTION not in task.messages[-1].text for task in tasks(descriptions=1.0, questions=50))


def objects_in(image: bytes) -> int:
    return len(list(places(image)))


def test_conversations_follow_the_prompt_of_the_task() -> None:
    data = VisualCotData(DataConfig(questions=20))
    for task, shown in zip(data.tasks("train"), data.conversations("train"), strict=True):
        observation = VisualCot(EnvironmentConfig()).reset(task, seed=0)
        assert shown.messages[:-1] == observation.messages == task.messages
        assert shown.images == task.images
        assert judge(shown.messages[-1].text, task.fields["answer"], task.fields["question"]).correct


def test_prompt_has_the_instruction_the_picture_and_the_question() -> None:
    system, user = tasks(questions=1)[0].messages
    assert (system.role, system.text) == ("system", INSTRUCTION)
    image, text = user.content
    assert isinstance(image, ImagePart)
    assert isinstance(text, TextPart)
    assert text.text.startswith("\n### Question:\nPlease answer based on the image content: ")
    assert [message.role for message in tasks(questions=1, system_prompt="")[0].messages] == ["user"]


def files(folder: Path, *rows: Any) -> dict[str, Any]:
    images = folder / "images"
    images.mkdir()
    for name in ("1", "2"):
        (images / f"{name}.jpg").write_bytes(picture(()))
    (images / "broken.jpg").write_bytes(b"no picture")
    (images / "cut.jpg").write_bytes(picture((), form="JPEG")[:-20])
    (folder / "secret.jpg").write_bytes(picture(()))
    os.symlink(folder / "secret.jpg", images / "link.jpg")
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return {"train": str(folder / "rows.jsonl"), "images": str(images)}


BAD = {
    "invalid JSON": ["{"],
    "missing or invalid field": [{**ROW, "cot": []}, {**ROW, "answer": " "}, {**ROW, "instruction": 3}, [1]],
    "unsafe picture name": [{**ROW, "imageId": name} for name in ("../secret", "link", "..", "a\\b", "/1", "1/../2")],
    "missing picture": [{**ROW, "imageId": "3"}],
    "unreadable picture": [{**ROW, "imageId": "cut"}, {**ROW, "imageId": "broken"}],
    "repeated question": [ROW],
}


def test_unusable_rows_are_counted_by_reason(tmp_path: Path) -> None:
    bad = [row for rows in BAD.values() for row in rows]
    other = {**ROW, "question": "And this?", "imageId": "2"}
    del other["instruction"]
    data = VisualCotData(DataConfig(**files(tmp_path, ROW, *bad, other), on_error="skip"))
    assert [task.fields["question"] for task in data.tasks("train")] == ["What is it?", "And this?"]
    assert data.tasks("train")[1].id == f"rows:{len(bad) + 2}"
    assert data.skipped_by_reason("train") == {reason: len(rows) for reason, rows in BAD.items()}
    assert data.skipped("train") == len(bad)


@pytest.mark.parametrize("reason", BAD)
def test_unusable_row_stops_a_strict_run(tmp_path: Path, reason: str) -> None:
    data = VisualCotData(DataConfig(**files(tmp_path, ROW, BAD[reason][0])))
    with pytest.raises(DataError, match=reason) as caught:
        data.tasks("train")
    assert "row 2" in str(caught.value)


def test_files_need_a_folder_of_pictures(tmp_path: Path) -> None:
    given = files(tmp_path, ROW)
    with pytest.raises(DataError, match="folder of pictures"):
        VisualCotData(DataConfig(train=given["train"])).tasks("train")
    with pytest.raises(DataError, match="does not exist"):
        VisualCotData(DataConfig(train=given["train"], images=str(tmp_path / "none"))).tasks("train")


def test_rows_of_one_picture_share_its_bytes(tmp_path: Path) -> None:
    first, second = tasks(**files(tmp_path, ROW, {**ROW, "instruction": "Where is it?"}))
    assert first.images[0] is second.images[0]


@pytest.mark.skipif(DATA is None, reason="RLCORE_DATA is not set")
def test_gqa_rows_are_read_and_their_conclusions_agree_with_the_answers() -> None:
    folder = Path(str(DATA)) / "visual_cot_gqa"
    data = VisualCotData(
        DataConfig(
            train=str(folder / "train_data.jsonl"),
            evaluation=str(folder / "dev_data.jsonl"),
            images=str(folder / "images"),
        )
    )
    known = [*data.tasks("train"), *data.tasks("evaluation")]
    assert len(known) == 498 + 125
    assert (data.skipped("train"), data.skipped("evaluation")) == (0, 0)
    agreeing = sum(concludes_with(task.fields["reasoning"], task.fields["answer"]) for task in known)
    assert agreeing / len(known) > 0.8
    perfect = [judge(conversation(task).messages[-1].text, task.fields["answer"]) for task in known]
    assert all(verdict.correct and verdict.parsed.well_formed for verdict in perfect)
