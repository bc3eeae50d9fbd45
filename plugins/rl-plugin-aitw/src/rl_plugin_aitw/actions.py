"""The actions of AITW."""

from __future__ import annotations

from rlcore_gui.actions import Action, ActionKind, ActionTable
from rlcore_gui.prompts import PromptStyle

CLICK = "CLICK"
TYPE = "TYPE"
SCROLLS = ("SCROLL UP", "SCROLL DOWN", "SCROLL LEFT", "SCROLL RIGHT")
PRESS_BACK, PRESS_HOME, PRESS_ENTER = "PRESS BACK", "PRESS HOME", "PRESS ENTER"
COMPLETE, IMPOSSIBLE = "STATUS TASK COMPLETE", "STATUS TASK IMPOSSIBLE"

ACTIONS = ActionTable(
    (
        ActionKind(name=CLICK, takes_position=True, meaning="tap an element of the screen."),
        ActionKind(name=TYPE, takes_value=True, meaning="type a text into the selected field.", aliases=("INPUT",)),
        ActionKind(name="SCROLL UP", meaning="scroll towards the top of the content."),
        ActionKind(name="SCROLL DOWN", meaning="scroll towards the bottom of the content."),
        ActionKind(name="SCROLL LEFT", meaning="scroll towards the left of the content."),
        ActionKind(name="SCROLL RIGHT", meaning="scroll towards the right of the content."),
        ActionKind(name=PRESS_BACK, meaning="go back to the previous screen."),
        ActionKind(name=PRESS_HOME, meaning="go to the home screen."),
        ActionKind(name=PRESS_ENTER, meaning="press the enter key."),
        ActionKind(name=COMPLETE, meaning="the task is done."),
        ActionKind(name=IMPOSSIBLE, meaning="the task cannot be done."),
    )
)

PROMPT = PromptStyle(
    role="You are an assistant that navigates a mobile phone.",
    table=ACTIONS,
    example=Action(name=CLICK, position=(0.5, 0.25)),
)
"""The style of the prompts."""
