"""The actions on a page: those of Mind2Web, and those of AITW that mean something on a page."""

from __future__ import annotations

from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.prompts import PromptStyle

CLICK, TYPE, SELECT, ENTER = "CLICK", "TYPE", "SELECT", "PRESS ENTER"
SCROLL_UP, SCROLL_DOWN = "SCROLL UP", "SCROLL DOWN"
COMPLETE, IMPOSSIBLE = "STATUS TASK COMPLETE", "STATUS TASK IMPOSSIBLE"

ACTIONS = ActionTable(
    (
        ActionKind(name=CLICK, takes_position=True, meaning="click an element of the page.", aliases=("HOVER",)),
        ActionKind(
            name=TYPE,
            takes_value=True,
            takes_position=True,
            position_optional=True,
            meaning="replace the text of a field; without a position, type into the selected field.",
            aliases=("INPUT",),
        ),
        ActionKind(name=SELECT, takes_value=True, takes_position=True, meaning="select an option, given as value."),
        ActionKind(name=SCROLL_UP, meaning="scroll up at the mouse pointer."),
        ActionKind(name=SCROLL_DOWN, meaning="scroll down at the mouse pointer."),
        ActionKind(name=ENTER, meaning="press the key Enter.", aliases=("ENTER",)),
        ActionKind(name=COMPLETE, meaning="end the episode: the task is done."),
        ActionKind(name=IMPOSSIBLE, meaning="end the episode: the task is impossible."),
    )
)

PROMPT = PromptStyle(
    role="You are an assistant that navigates the web.",
    table=ACTIONS,
    example=Action(name=TYPE, value="text", position=(0.5, 0.25)),
)
"""The style of the prompts, which is that of Mind2Web."""
