"""Action tables read what models write and write what they read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_gui.actions import Action, ActionKind, ActionTable, UnreadableAction

TABLE = ActionTable(
    (
        ActionKind(name="CLICK", takes_position=True, meaning="tap an element."),
        ActionKind(name="TYPE", takes_value=True, meaning="type a text.", aliases=("INPUT",)),
        ActionKind(name="SELECT", takes_value=True, takes_position=True, meaning="select an option."),
        ActionKind(name="PRESS HOME", meaning="go home."),
    )
)
CLICK = Action(name="CLICK", position=(0.5, 0.25))


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "CLICK", "value": null, "position": [0.5, 0.25]}',
        "{'action': 'CLICK', 'value': None, 'position': [0.5, 0.25]}",
        "{'action': 'CLICK', 'value': None, 'position': (0.5, 0.25)}",
        '{"position": [0.5, 0.25], "value": null, "action": "CLICK"}',
        '{"position": [.5, 2.5e-1], "action": "click"}',
        "{'action': 'CLICK', 'value': '', 'position': (0.5, .25,),}",
        "\n  {\"action\" : 'CLICK' ,'position':[ 0.5 , 0.25 ] }  ",
    ],
)
def test_json_and_python_literals_are_the_same_action(text: str) -> None:
    assert TABLE.parse(text) == CLICK


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"don\'t"', "don't"),
        ("'don't'", "don't"),
        (r"'don\'t'", "don't"),
        ("'rock 'n' roll'", "rock 'n' roll"),
        ("'say \"hi\"'", 'say "hi"'),
        (r'"say \"hi\""', 'say "hi"'),
        ("''", ""),
        ("'a, b: {c} [d]'", "a, b: {c} [d]"),
        (r'"caf\u00e9 \ud83d\ude00"', "café 😀"),
        (r"'C:\\dir'", "C:\\dir"),
        (r"'a\qb'", r"a\qb"),
        ("'None'", "None"),
    ],
)
def test_values_keep_apostrophes_quotes_and_escapes(written: str, value: str) -> None:
    for text in (
        f"{{'action': 'TYPE', 'value': {written}, 'position': None}}",
        f"{{'action':'TYPE','value':{written}}}",
    ):
        assert TABLE.parse(text) == Action(name="TYPE", value=value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an object"),
        ("CLICK", "not an object"),
        ("[0.5, 0.5]", "not an object"),
        ('{"action": "CLICK", "position": [0.5, 0.5]', "not an object"),
        ('{"action": "CLICK", "position": [0.5, 0.5]} {"action": "PRESS HOME"}', "not an object"),
        ('{"action": "PRESS HOME", "action": "CLICK"}', "not an object"),
        ('{"action": "TYPE", "value": "a}', "not an object"),
        ('{"action": "CLICK", "position": [[0.5, 0.5]]}', "not an object"),
        ('{"action": "CLICK", "position": [NaN, 0.5]}', "not an object"),
        ('{"action": __import__("os")}', "not an object"),
        ('{"action": "TYPE", "value": "' + 4000 * "a" + '"}', "too long"),
        ("{" * 4000, "not an object"),
        ('{"action": "CLICK", "position": [0.5, 0.5], "duration": 3}', "unknown keys"),
        ('{"value": null, "position": null}', "missing keys"),
        ('{"action": null}', "missing keys"),
        ('{"action": "FLY"}', "unknown action"),
        ('{"action": "TYPE"}', "missing value"),
        ('{"action": "TYPE", "value": null}', "missing value"),
        ('{"action": "PRESS HOME", "value": "x"}', "superfluous value"),
        ('{"action": "TYPE", "value": 12}', "value is not text"),
        ('{"action": "TYPE", "value": true}', "value is not text"),
        ('{"action": "TYPE", "value": ["x"]}', "value is not text"),
        ('{"action": "CLICK"}', "missing position"),
        ('{"action": "PRESS HOME", "position": [0.5, 0.5]}', "superfluous position"),
        ('{"action": "CLICK", "position": [0.5]}', "position is not two numbers"),
        ('{"action": "CLICK", "position": [0.1, 0.2, 0.3, 0.4]}', "position is not two numbers"),
        ('{"action": "CLICK", "position": "0.5, 0.5"}', "position is not two numbers"),
        ('{"action": "CLICK", "position": [true, 0.5]}', "position is not two numbers"),
        ('{"action": "CLICK", "position": [-0.1, 0.5]}', "position out of range"),
        ('{"action": "CLICK", "position": [0.5, 1.001]}', "position out of range"),
        ('{"action": "CLICK", "position": [1e400, 0.5]}', "position out of range"),
        ('{"action": "CLICK", "position": [540, 960]}', "position in pixels"),
    ],
)
def test_other_texts_are_unreadable_for_a_stated_reason(text: str, reason: str) -> None:
    with pytest.raises(UnreadableAction) as caught:
        TABLE.parse(text)
    assert caught.value.reason == reason


def test_rendered_action_has_three_decimals_in_a_fixed_order() -> None:
    action = Action(name="select", value="don't", position=(0.1234, 1))
    assert TABLE.render(action) == '{"action": "SELECT", "value": "don\'t", "position": [0.123, 1.000]}'


@given(value=st.text(alphabet="a1é😀'\"\\,:;{}[]() \n\t/", max_size=50), x=st.integers(0, 1000), y=st.integers(0, 1000))
def test_every_rendered_action_is_read_back(value: str, x: int, y: int) -> None:
    for kind in TABLE.kinds:
        position = (x / 1000, y / 1000) if kind.takes_position else None
        action = Action(name=kind.name, value=value if kind.takes_value else None, position=position)
        assert TABLE.parse(TABLE.render(action)) == action


@given(st.text(alphabet="{}[]()'\",:\\ \nactionvluepsNn0.-1", max_size=200))
def test_any_text_is_an_action_or_unreadable(text: str) -> None:
    try:
        action = TABLE.parse(text)
    except UnreadableAction:
        return
    assert TABLE.find(action.name) is not None


def test_names_are_found_by_alias_and_in_any_case() -> None:
    assert TABLE.find("press_home") == TABLE.find("Press  Home") == TABLE.kinds[3]
    assert TABLE.parse("{'action': 'input', 'value': 'x'}").name == "TYPE"
    assert TABLE.find("PRESS") is None


def test_two_actions_of_one_name_are_rejected() -> None:
    row = ActionKind(name="TAP", meaning="tap.")
    with pytest.raises(ValueError, match="tap"):
        ActionTable((row, ActionKind(name="CLICK", meaning="click.", aliases=("tap",))))


def test_prompt_names_what_each_action_needs() -> None:
    assert TABLE.prompt_lines() == [
        "- CLICK: tap an element. (needs position; value is null)",
        "- TYPE: type a text. (needs value; position is null)",
        "- SELECT: select an option. (needs value and position)",
        "- PRESS HOME: go home. (value and position are null)",
    ]


def test_optional_position_may_be_left_out() -> None:
    kind = ActionKind(
        name="TYPE", takes_value=True, takes_position=True, position_optional=True, meaning="type a text."
    )
    table = ActionTable((kind,))
    for position in (None, (0.5, 0.25)):
        action = Action(name="TYPE", value="a", position=position)
        assert table.parse(table.render(action)) == action
    assert table.prompt_lines() == ["- TYPE: type a text. (needs value; position is optional)"]
