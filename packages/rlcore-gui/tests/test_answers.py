"""Answers follow one grammar, which the parser tells from other texts."""

from __future__ import annotations

import pytest
from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.answers import Answer, parse, render

TABLE = ActionTable(
    (
        ActionKind(name="CLICK", takes_position=True, meaning="tap."),
        ActionKind(name="TYPE", takes_value=True, meaning="type."),
    )
)
ACTION = Action(name="CLICK", position=(0.5, 0.25))
ANSWER = Answer(progress="Nothing yet.", reasoning="The icon opens it.", action=ACTION, summary="The app is open.")
TEXT = """\
<think>
<Progress Estimation>Nothing yet.</Progress Estimation>
<Decision Reasoning>The icon opens it.</Decision Reasoning>
<action>{"action": "CLICK", "value": null, "position": [0.500, 0.250]}</action>
<History Summary>The app is open.</History Summary>
</think>"""


def test_rendered_answer_is_strict_and_read_back() -> None:
    assert render(ANSWER, TABLE) == TEXT
    parsed = parse(TEXT, TABLE)
    assert (parsed.action, parsed.summary, parsed.strict, parsed.unreadable) == (ACTION, ANSWER.summary, True, None)


def test_white_space_between_sections_is_free() -> None:
    assert parse(" \n" + TEXT.replace("\n", "") + "\n", TABLE).strict


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("</think>", "<think>"),
        TEXT.replace("<think>\n", ""),
        TEXT + "\nDone.",
        "Sure!\n" + TEXT,
        TEXT.replace("<action>", "then <action>"),
        TEXT.replace("<Decision Reasoning>The icon opens it.</Decision Reasoning>\n", ""),
        TEXT.replace("Decision Reasoning", "Decision Making"),
        TEXT.replace("Nothing yet.", " "),
        TEXT.replace("Nothing yet.", "Nothing yet.</think><think>"),
        TEXT.replace("</Progress Estimation>\n<Decision Reasoning>", "<Decision Reasoning></Progress Estimation>"),
        TEXT.replace("Progress Estimation", "x").replace("History Summary", "Progress Estimation").replace("<x", "<H"),
        TEXT.replace("<History Summary>The app", "<History Summary>a</History Summary>\n<History Summary>The app"),
    ],
)
def test_other_orders_and_extra_text_are_not_strict(text: str) -> None:
    parsed = parse(text, TABLE)
    assert not parsed.strict
    assert parsed.action == ACTION


def test_answer_with_unreadable_action_is_not_strict() -> None:
    parsed = parse(TEXT.replace("0.250", "1.250"), TABLE)
    assert (parsed.strict, parsed.action, parsed.unreadable) == (False, None, "position out of range")
    assert parsed.summary == "The app is open."


@pytest.mark.parametrize(
    ("text", "unreadable"),
    [
        ("", "no action"),
        ("I tap the icon.", "no action"),
        ("<action>", "no action"),
        ("</action>{}<action>", "no action"),
        ("<action></action>", "not an object"),
        ('<action>{"action": "CLICK", "position": [0.5, 0.25]}', "no action"),
        (TEXT + TEXT, "several actions"),
        (TEXT.replace("<action>", "<action><action>"), "several actions"),
    ],
)
def test_texts_without_exactly_one_action_are_counted_by_reason(text: str, unreadable: str) -> None:
    parsed = parse(text, TABLE)
    assert (parsed.action, parsed.unreadable, parsed.strict) == (None, unreadable, False)


def test_bare_object_is_an_action_without_form() -> None:
    parsed = parse("{'action': 'CLICK', 'value': None, 'position': (0.5, 0.25)}", TABLE)
    assert (parsed.action, parsed.strict, parsed.summary) == (ACTION, False, None)


def test_repeated_summary_is_none() -> None:
    assert parse(TEXT + "<History Summary>b</History Summary>", TABLE).summary is None
    assert parse(TEXT.replace("The app is open.", " "), TABLE).summary is None


@pytest.mark.parametrize("summary", ["", " ", "a </History Summary> b", "<think>", "<action>{}</action>"])
def test_section_that_breaks_the_grammar_is_not_rendered(summary: str) -> None:
    broken = Answer(progress="p", reasoning="r", action=ACTION, summary=summary)
    with pytest.raises(ValueError, match="section"):
        render(broken, TABLE)
