"""Prompts are made from the table of actions and the sections of an answer."""

from __future__ import annotations

import pytest
from rlcore.types import ImagePart
from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.answers import FRAME, SECTIONS, closing, opening, parse
from rlcore_gui.prompts import PromptStyle, action_history, instructions, prompt_message, step_text

TABLE = ActionTable(
    (
        ActionKind(name="CLICK", takes_position=True, meaning="tap."),
        ActionKind(name="TYPE", takes_value=True, meaning="type."),
    )
)
STYLE = PromptStyle(role="You tap.", table=TABLE, example=Action(name="CLICK", position=(0.5, 0.25)))


def test_format_that_the_prompt_shows_is_a_strict_answer() -> None:
    text = step_text(instructions(STYLE), task="t", memory=None)
    shown = text[text.index(opening(FRAME)) : text.index(closing(FRAME)) + len(closing(FRAME))]
    assert parse(shown, TABLE).strict
    assert parse(shown, TABLE).action == STYLE.example


def test_prompt_has_every_section_and_action_in_order() -> None:
    text = step_text(instructions(STYLE), task="Open it", memory="Home is open.")
    parts = ["You tap.", *(f". {name}: " for name in SECTIONS), "## Action Space", *TABLE.prompt_lines()]
    parts += ["## Output Format", opening(FRAME), "top left", "\nTask: Open it", "\nHistory summary: Home is open."]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "{{" not in text


@pytest.mark.parametrize("memory", [None, "", " \n"])
def test_first_step_has_no_summary(memory: str | None) -> None:
    assert step_text(instructions(STYLE), task="a\nHistory summary: b", memory=memory).endswith(
        "\nTask: a History summary: b\nHistory summary: none"
    )


def test_screenshot_precedes_the_text() -> None:
    message = prompt_message("text", b"png")
    assert message.content[0] == ImagePart.of(b"png")
    assert message.text == "text"


def test_history_of_actions_counts_from_the_beginning() -> None:
    actions = [Action(name="TYPE", value=str(number)) for number in range(3)]
    assert action_history(actions, TABLE, last=1) == 'Step 3: {"action": "TYPE", "value": "2", "position": null}'
    assert action_history(actions, TABLE).count("Step") == 3
    assert action_history([], TABLE, last=4) == ""
