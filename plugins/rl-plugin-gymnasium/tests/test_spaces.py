"""How observations are shown, and which texts are actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rl_plugin_gymnasium.spaces import Actions, InvalidAction, check_observation_space, observation_text
from rlcore.errors import UserError

SMALL = spaces.Box(-1.0, 1.0, (2,))
GRID = spaces.Box(0, 9, (2, 3), dtype=np.int64)


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        (spaces.Text(9), "a door", "a door"),
        (spaces.Discrete(16), np.int64(5), "5"),
        (SMALL, np.array([0.123456, -1.0], dtype=np.float32), "0.1235 -1"),
        (GRID, np.array([[1, 2, 3], [4, 5, 6]]), "1 2 3\n4 5 6"),
        (spaces.MultiBinary(3), np.array([1, 0, 1], dtype=np.int8), "1 0 1"),
        (spaces.Tuple((spaces.Discrete(32), spaces.Discrete(2))), (14, 1), "14, 1"),
        (spaces.Tuple((GRID, spaces.Discrete(2))), (np.zeros((2, 3), dtype=int), 1), "0 0 0\n0 0 0\n1"),
        (
            spaces.Dict(sum=spaces.Discrete(9), grid=GRID),
            {"sum": 3, "grid": np.ones((2, 3))},
            "sum: 3\ngrid:\n1 1 1\n1 1 1",
        ),
    ],
)
def test_observations_are_shown_as_text(space: spaces.Space[Any], value: Any, text: str) -> None:
    check_observation_space(space)
    assert observation_text(space, value) == text


@pytest.mark.parametrize("space", [spaces.Box(0, 1, (84, 84, 3)), spaces.Sequence(spaces.Discrete(2))])
def test_observations_that_cannot_be_shown_are_errors(space: spaces.Space[Any]) -> None:
    with pytest.raises(UserError, match="camera"):
        check_observation_space(spaces.Dict(camera=space))


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("left", 0),
        ("I go Right.", 2),
        ("left or right? right", 2),
        ("up\n", 3),
        ("**DOWN**", 1),
        ("_down_", 1),
        ("__Right__.", 2),
        ("Not *up*, _but left_", 0),
    ],
)
def test_the_last_name_in_a_text_is_the_action(text: str, action: int) -> None:
    assert Actions(spaces.Discrete(4), ["left", "down", "right", "up"]).parse(text) == action


@pytest.mark.parametrize(
    "text", ["Move forward", "move  forward", "move\nforward", "I move.\nMOVE\t forward!", "__move forward__"]
)
def test_any_white_space_separates_the_words_of_a_name(text: str) -> None:
    for names in (["move", "move forward"], ["move", " Move  forward"]):
        assert Actions(spaces.Discrete(2), names).parse(text) == 1


@pytest.mark.parametrize(
    "text", ["move, forward", "move forwards", "**move** forward", "move. Forwards", "move - forward"]
)
def test_a_text_that_is_similar_to_a_name_is_no_action(text: str) -> None:
    for before in ("", "move? "):
        with pytest.raises(InvalidAction):
            Actions(spaces.Discrete(2), ["move", "move forward"]).parse(before + text)


@pytest.mark.parametrize("text", ["", "leftmost", "up-left!", "_up_left_", "up_left", "4", "\ud800", "x" * 100_000])
def test_a_text_without_a_name_is_no_action(text: str) -> None:
    with pytest.raises(InvalidAction, match="left, up"):
        Actions(spaces.Discrete(2), ["left", "up"]).parse(text)


def test_actions_without_names_are_numbers() -> None:
    actions = Actions(spaces.Discrete(12, start=-1))
    for text, action in (("-1", -1), ("take 10", 10), ("1 or 2: 2", 2), ("_1_", 1), ("1 000 fields: 2", 2)):
        assert actions.parse(text) == action
    for text in ("11", "3.5", "100", "1/2", "2 or 1 / 2", "1,2", "1,2.5", "1 000", "1 002", "9" * 200_000):
        with pytest.raises(InvalidAction):
            actions.parse(text)
    assert actions.text(np.int64(10)) == "10"


def test_several_numbers_are_one_action() -> None:
    actions = Actions(spaces.MultiDiscrete([3, 5]))
    for text in ("first 2, then 4", "2,4", "_2_ __4__", "1/3 is done: 2 4"):
        assert actions.parse(text).tolist() == [2, 4]
    assert actions.text(np.array([2, 4])) == "2 4"
    for text in ("2", "3 0", "-1 0", "9" * 50, "1 000 2", "1,000 2", "1/2", "2 1/2", "1/2 2"):
        with pytest.raises(InvalidAction, match="0 to 2, 0 to 4"):
            actions.parse(text)


def test_text_actions_are_the_whole_text() -> None:
    actions = Actions(spaces.Text(4, charset="abc"))
    assert actions.parse(" abba\n") == "abba"
    with pytest.raises(InvalidAction):
        actions.parse("abcabc")


@pytest.mark.parametrize(
    ("space", "names", "found"),
    [
        (SMALL, [], "Box"),
        (spaces.Discrete(3), ["a", "b"], "a, b"),
        (spaces.Discrete(2), ["a", "A"], "a, A"),
        (spaces.MultiDiscrete([2, 2]), ["a"], "MultiDiscrete"),
    ],
)
def test_actions_that_cannot_be_written_are_errors(space: spaces.Space[Any], names: list[str], found: str) -> None:
    with pytest.raises(UserError, match=found):
        Actions(space, names)
