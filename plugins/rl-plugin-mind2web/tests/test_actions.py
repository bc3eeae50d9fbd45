"""The table of actions."""

from __future__ import annotations

from rl_plugin_mind2web.actions import ACTIONS
from rlcore_gui.actions import Action


def test_every_action_of_the_prompt_is_read_back() -> None:
    for kind in ACTIONS.kinds:
        value = "don't" if kind.takes_value else None
        action = Action(name=kind.name, value=value, position=(0.125, 1.0) if kind.takes_position else None)
        assert ACTIONS.parse(ACTIONS.render(action)) == action
