"""Notes of plugins on turns: marks on images, and lines below the answers."""

from __future__ import annotations

from typing import Any

import pytest
from pictured_groups import groups
from rlcore.plugins.registry import Registry
from rlcore.report import TurnNote, notes_of_plugins

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
