"""Notes of plugins on sheets: marks on images, and lines below the answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pictured_groups import groups
from rlcore.plugins.registry import Registry
from rlcore.report import Facts, Mark, TurnNote, notes_of_plugins, sheet
from rlcore.testing import make_trajectory
from rlcore.types import Group, ImagePart, Message, Task, TextPart, Trajectory

FACTS = Facts(title="Evaluation")
RING = Mark(kind="expected", point=(0.25, 0.5), box=(0.2, 0.4, 0.3, 0.6), label="CLICK Search")
CROSS = Mark(kind="given", point=(0.75, 0.5), label="CLICK 0.75, 0.5")
NOTE = TurnNote(marks=(RING, CROSS), lines=(("expected", "CLICK Search"), ("given", "CLICK")), right=False)


def noted(*notes: TurnNote | None) -> Callable[[Task, Trajectory], Sequence[TurnNote | None]]:
    return lambda task, trajectory: notes


def two_turns() -> Group:
    (first, second) = (one.task.images[0] for one in groups(2))
    asked = Message(role="user", content=(ImagePart.of(first), TextPart(text="Tap.")))
    then = Message(role="user", content=(ImagePart.of(first), ImagePart.of(second), TextPart(text="Next.")))
    one = make_trajectory(asked, "tapped", then, "tapped again", images=[first, second])
    return Group(task=Task(id="t", messages=(asked,), images=(first,)), trajectories=(one,))


def drawings(page: str) -> list[str]:
    return re.findall(r'<svg class="marks".*?</svg>', page)


def test_marks_are_drawn_at_fractions_of_the_image() -> None:
    (one,) = groups(1)
    page = sheet([one], FACTS, noted(NOTE))
    width, height = map(int, re.findall(r'width="(\d+)" height="(\d+)" alt=', page)[0])
    (drawing,) = drawings(page)
    assert f'viewBox="0 0 {width} {height}"' in drawing
    assert f'class="expected" cx="{0.25 * width:.1f}" cy="{0.5 * height:.1f}"' in drawing
    assert f'class="expected" x="{0.2 * width:.1f}" y="{0.4 * height:.1f}"' in drawing
    assert 'class="given" d="M' in drawing
    assert "<title>CLICK Search</title>" in drawing
    assert "A ring marks the expected place" in page


def test_lines_are_shown_with_a_verdict_of_the_turn() -> None:
    page = sheet([two_turns()], FACTS, noted(NOTE, TurnNote(lines=(("given", "HOME"),), right=True)))
    assert re.findall(r'<p class="turn (\w+)">', page) == ["wrong", "right"]
    assert "<span>expected <b>CLICK Search</b></span><span>given <b>CLICK</b></span>" in page


def test_marks_are_on_the_last_image_before_their_turn() -> None:
    later = TurnNote(marks=(Mark(kind="given", point=(0.5, 0.5), label="second"),))
    page = sheet([two_turns()], FACTS, noted(NOTE, later))
    figures = re.findall(r"<figure.*?</figure>", page)
    labels = [re.findall(r"<title>(.*?)</title>", figure) for figure in figures]
    assert labels == [["CLICK Search", "CLICK 0.75, 0.5"], [], ["second"]]


def test_short_question_folds_the_prompt_of_its_turn() -> None:
    notes = noted(TurnNote(asked="Where?", right=True), TurnNote(asked="Next.", right=False))
    page = sheet([two_turns()], FACTS, notes)
    folded = re.findall(
        r'<p class="text">(.*?)</p><details><summary>Prompt, 4 characters</summary>(.*?)</details>', page
    )
    assert folded == [("Where?", '<p class="text">Tap.</p>')]
    assert page.count("Next.") == 1, "a short text that is the whole text folds nothing"


@pytest.mark.parametrize(
    ("notes", "headline"),
    [
        ((TurnNote(answer="CLICK", right=True),), "CLICK"),
        ((TurnNote(answer="CLICK", right=True), TurnNote(answer="HOME", right=False)), "1 of 2 turns right"),
        ((TurnNote(lines=(("a", "b"),)),), "tapped again"),
        ((None, None), "tapped again"),
    ],
)
def test_first_line_shows_the_answer_of_the_note(notes: Sequence[TurnNote | None], headline: str) -> None:
    assert re.findall(r"</span> <b>(.*?)</b></h3>", sheet([two_turns()], FACTS, noted(*notes))) == [headline]


def test_shared_prompt_shows_the_marks_of_all_siblings() -> None:
    (one,) = groups(1, siblings=3)

    def notes(task: Task, trajectory: Trajectory) -> Sequence[TurnNote | None]:
        return [TurnNote(marks=(RING, Mark(kind="given", point=(trajectory.sibling / 10, 0.1))))]

    (drawing,) = drawings(sheet([one], FACTS, notes))
    assert (drawing.count("<circle"), drawing.count("<path")) == (2, 6)  # each with its halo


def test_page_without_notes_is_unchanged() -> None:
    found = groups(3)
    page = sheet(found, FACTS)
    assert page == sheet(found, FACTS, noted()) == sheet(found, FACTS, noted(None, None))
    assert not drawings(page)
    assert "A ring marks" not in page


@pytest.mark.parametrize("text", ["</svg><script>alert(1)</script>", "\" onload='x'", "\x1b[31m\u202e\ud800\x00"])
def test_hostile_notes_add_no_markup(text: str) -> None:
    marks = tuple(Mark(kind="given", point=(-n, 1e9), box=(2.0, -1.0, 0.0, 0.5), label=text) for n in range(100))
    page = sheet([two_turns()], FACTS, noted(TurnNote(marks=marks, lines=((text, text),), asked=text, answer=text)))
    assert "<script" not in page
    assert not re.search(r"<[^>]* on\w+=", page)
    assert all(character == "\n" or character.isprintable() for character in page)
    assert drawings(page)[0].count("<path") == 128


PLUGIN = """
from rlcore import hookimpl
from rlcore.report import Mark, TurnNote

@hookimpl
def rlcore_turn_notes(task, trajectory):
    return {answer}
"""


@pytest.mark.parametrize(
    "wrong",
    [
        "7",
        "[7]",
        "[TurnNote(marks=(Mark(kind='given'),))]",
        "[TurnNote(lines=((1, 2),))]",
        "[TurnNote(asked=1)]",
        "1 / 0",
    ]
    + [f"[TurnNote(marks=(Mark(kind='given', point=({number}, 0)),))]" for number in ("float('nan')", "None")],
)
def test_plugin_with_invalid_notes_is_skipped(install: Any, caplog: pytest.LogCaptureFixture, wrong: str) -> None:
    (one,) = groups(1)
    install("acme-rl", PLUGIN.format(answer=wrong))
    notes = notes_of_plugins(Registry())
    assert notes(one.task, one.trajectories[0]) == ()
    assert "acme-rl" in caplog.text


def test_first_plugin_that_answers_provides_the_notes(install: Any) -> None:
    (one,) = groups(1)
    install("aaa-passes", PLUGIN.format(answer="None"))
    install("bbb-answers", PLUGIN.format(answer="[TurnNote(lines=(('task', task.id),))]"))
    found = notes_of_plugins(Registry())(one.task, one.trajectories[0])
    assert found == [TurnNote(lines=(("task", one.task.id),))]
