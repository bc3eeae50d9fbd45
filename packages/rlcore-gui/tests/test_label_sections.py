"""What a teacher is asked, what it may answer, and the pictures that it gets."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from rlcore.errors import DataError
from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.labels.pictures import sent_picture
from rlcore_gui.labels.prompt import (
    EXAMPLE,
    StepLabels,
    UnreadableSections,
    question,
    read_sections,
    sections,
    system_prompt,
)
from rlcore_gui.steps import GuiStep

GOOD = StepLabels(progress="Half is done.", reasoning="The <b> key's next.", summary="Opened it; don't stop.")
TABLE = ActionTable((ActionKind(name="CLICK", takes_position=True, meaning="Tap."),))
STEP = GuiStep(
    row_id="7-0",
    episode_id="7",
    step_index=0,
    group="g",
    task="Open it",
    image=None,
    image_size=None,
    action=Action(name="CLICK", position=(0.5, 0.25)),
)


def test_sections_are_read_as_they_are_written() -> None:
    assert read_sections(sections(GOOD)) == GOOD
    spaced = sections(GOOD).replace("Half is", "\n  Half\n is").replace("\n<", "\n\n  <")
    assert read_sections(f"\n{spaced}\n") == GOOD


def test_example_of_the_prompt_is_a_valid_answer() -> None:
    prompt = system_prompt("a phone")
    assert read_sections(prompt.rpartition("Answer:\n")[2]) == EXAMPLE
    assert "on a phone" in prompt


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<Progress", "Sure! <Progress"),
        ("Half is done.", ""),
        ("Half is done.", "x" * 2001),
        ("Half is done.", "<action>{}</action>"),
        ("</History Summary>", "</History Summary> Done."),
        ("</Decision Reasoning>", "</Decision Reasoning> and"),
        ("</History Summary>", ""),
        ("History Summary", "Summary"),
        ("Decision Reasoning", "History Summary"),
        ("<Progress Estimation>Half is done.</Progress Estimation>", ""),
        ("<History Summary>", "</History Summary><History Summary>"),
        ("Half is done.", "</Progress Estimation><Progress Estimation>"),
        ("Half is done.", "<THINK>Half is done."),
        ("Half is done.", "Half \x00 is done."),
        ("Half is done.", "\x1b[31mHalf is done."),
        ("Half is done.", "Half is done\ud800."),
        ("is done.", "is done\ufffd."),
    ],
)
def test_any_other_answer_is_unreadable(before: str, after: str) -> None:
    text = sections(GOOD)
    assert before in text
    with pytest.raises(UnreadableSections):
        read_sections(text.replace(before, after))


@pytest.mark.parametrize(
    "text", ["已打开设置。", "L'été, naïve; 50 % > 3 & <b>", "تم فتح الإعدادات", "Done 👩\u200d💻."]
)
def test_sections_may_be_in_any_language(text: str) -> None:
    assert read_sections(sections(replace(GOOD, summary=text))).summary == text


def test_sections_in_another_order_are_unreadable() -> None:
    with pytest.raises(UnreadableSections, match="order"):
        read_sections("\n".join(reversed(sections(GOOD).split("\n"))))


def test_question_has_the_action_the_summary_and_later_actions() -> None:
    first = question(STEP, TABLE, memory=None, since=())
    assert "Summary of the earlier steps: none, this is the first step" in first
    assert 'Action of this step: {"action": "CLICK", "value": null, "position": [0.500, 0.250]}' in first
    later = question(STEP, TABLE, memory="Opened it.", since=[Action(name="SWIPE", value="up")], complaint="too long")
    assert "Summary of the earlier steps: Opened it.\nActions after the summary: SWIPE up" in later
    assert "not accepted: too long." in later


def encoded(size: tuple[int, int], kind: str) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", size, "red").save(written, format=kind)
    return written.getvalue()


def test_large_or_other_pictures_become_small_jpegs(tmp_path: Path) -> None:
    small, large, png = (tmp_path / name for name in ("small.jpg", "large.jpg", "screen.png"))
    small.write_bytes(encoded((30, 60), "JPEG"))
    large.write_bytes(encoded((100, 400), "JPEG"))
    png.write_bytes(encoded((30, 60), "PNG"))
    assert sent_picture(small, max_side=100, quality=90).data == small.read_bytes()
    assert sent_picture(large, max_side=100, quality=90).size == (25, 100)
    picture = sent_picture(png, max_side=100, quality=90)
    assert (picture.size, picture.uri[:23]) == ((30, 60), "data:image/jpeg;base64,")
    small.write_bytes(small.read_bytes()[:200])
    for path in (small, tmp_path / "missing.png"):
        with pytest.raises(DataError):
            sent_picture(path, max_side=100, quality=90)
