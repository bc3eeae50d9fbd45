"""The actions of Mind2Web."""

from __future__ import annotations

from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.prompts import PromptStyle

CLICK, TYPE, SELECT = "CLICK", "TYPE", "SELECT"

ACTIONS = ActionTable(
    (
        ActionKind(
            name=CLICK,
            takes_position=True,
            meaning="click an element of the page.",
            aliases=("HOVER", "ENTER"),
        ),
        ActionKind(name=TYPE, takes_value=True, takes_position=True, meaning="type a text into a field."),
        ActionKind(name=SELECT, takes_value=True, takes_position=True, meaning="select an option, given as value."),
    )
)

PROMPT = PromptStyle(
    role="You are an assistant that navigates the web.",
    table=ACTIONS,
    example=Action(name=TYPE, value="text", position=(0.5, 0.25)),
)
"""The style of the prompts."""
