"""Notes of plugins on turns: they are data that a page can show, or their plugin is named."""

from __future__ import annotations

from typing import Any

import pytest
from pictured_groups import groups
from rlcore.plugins.registry import Registry
from rlcore.report import Notes, TurnNote, notes_of_plugins

PLUGIN = """
from rlcore import hookimpl
from rlcore.report import Cell, Film, Mark, Picture, Table, TurnNote

@hookimpl
def rlcore_turn_notes({arguments}):
    return {answer}
"""
PICTURE = "[TurnNote(pictures=(Picture(image={},),))]"


def notes() -> Notes:
    (one,) = groups(1)
    return notes_of_plugins(Registry())(one.task, one.trajectories[0], 7)


@pytest.mark.parametrize(
    "wrong",
    [
        "7",
        "[7]",
        "[TurnNote(marks=(Mark(kind='given'),))]",
        "[TurnNote(marks=(Mark(kind='given', point=(float('nan'), 0)),))]",
        "[TurnNote(marks=(Mark(kind='given', point=(None, 0)),))]",
        "[TurnNote(lines=((1, 2),))]",
        "[TurnNote(lines=(('a', 'b', 'c'),))]",
        "[TurnNote(asked=1)]",
        "[TurnNote(said=1)]",
        "[TurnNote(cells=(Cell(code=1),))]",
        "[TurnNote(cells=('print(1)',))]",
        "[TurnNote(tables=(Table(columns=('a',), rows=(('x', 'y'),)),))]",
        "[TurnNote(tables=(Table(columns=('a',), rows=((float('inf'),),)),))]",
        "[TurnNote(tables=(Table(columns=('a',), rows=(('x',),) * 1001),))]",
        "[TurnNote(films=(Film(file='../secret.mp4'),))]",
        "[TurnNote(films=(Film(file='/etc/film.mp4'),))]",
        "[TurnNote(films=(Film(file='videos/page.html'),))]",
        PICTURE.format("'../../config.toml'"),
        PICTURE.format("bytes(16_000_001)"),
        PICTURE.format("b'', marks=(Mark(kind='given'),)"),
        "[TurnNote(pictures=(Picture(image=b''),) * 201)]",
        "[TurnNote(asked='x' * 1_000_001)] * 2",
        "1 / 0",
    ],
)
def test_plugin_with_invalid_notes_is_skipped_and_named(
    install: Any, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    install("acme-rl", PLUGIN.format(arguments="task, trajectory", answer=wrong))
    found = notes()
    assert found.turns == ()
    assert "acme-rl" in found.problem
    assert "acme-rl" in caplog.text


def test_notes_have_all_that_a_page_shows(install: Any) -> None:
    answer = """[TurnNote(
        cells=(Cell(code="1", output="2", error="3", pictures=(Picture(image=b"first"),)),),
        pictures=(Picture(image="0" * 64), Picture(image=b"second", title="crop")),
        films=(Film(file="videos/000010-7-not-done.mp4"),),
        tables=(Table(columns=("term", "value"), rows=(("error", 0.5),)),),
    ), None]"""
    install("acme-rl", PLUGIN.format(arguments="task", answer=answer))
    found = notes()
    assert found.problem == ""
    note, nothing = found.turns
    assert nothing is None
    assert note is not None
    assert note.made == [b"first", b"second"]


def test_first_plugin_that_answers_provides_the_notes(install: Any) -> None:
    (one,) = groups(1)
    install("aaa-fails", PLUGIN.format(arguments="task", answer="1 / 0"))
    install("bbb-passes", PLUGIN.format(arguments="task", answer="None"))
    install("ccc-answers", PLUGIN.format(arguments="task, step", answer="[TurnNote(lines=((task.id, f'{step}'),))]"))
    found = notes()
    assert found.turns == [TurnNote(lines=((one.task.id, "7"),))]
