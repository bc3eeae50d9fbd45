"""The prompt of a GUI agent, made from the table of actions and the names of the sections."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.types import ImagePart, Message, TextPart

from rlcore_gui.actions import DECIMALS, Action, ActionTable
from rlcore_gui.answers import ACTION, PROGRESS, REASONING, SUMMARY, skeleton
from rlcore_gui.object_parser import to_json_text

MEANINGS = {
    PROGRESS: "estimate which part of the task is done, from the summary and the screenshot.",
    REASONING: "explain which action is next, and why.",
    ACTION: "state exactly one action of the action space.",
    SUMMARY: "update the summary with this action, as the only memory of the next step.",
}
"""What each section must contain, as the prompt explains it."""

POSITIONS = (
    "A position is [x, y], relative to the screenshot, from 0 to 1. The origin is the top left corner; x increases to "
    "the right and y downwards. A value or position that an action does not need is null."
)
NO_MEMORY = "none"
"""The history summary in the prompt of a first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle:
    """What distinguishes the prompts of two data sets."""

    role: str
    """The first sentence."""
    table: ActionTable
    example: Action
    """The action in the format that the prompt shows."""


def instructions(style: PromptStyle) -> str:
    """The part of the prompt that is the same for every step."""
    reasoning = (f"{number}. {name}: {text}" for number, (name, text) in enumerate(MEANINGS.items(), start=1))
    return "\n".join(
        [
            style.role,
            "You receive a task, a screenshot and a summary of the history. You answer with these parts:",
            *reasoning,
            "",
            "## Action Space",
            *style.table.prompt_lines(),
            "",
            "## Output Format",
            skeleton(("...", "...", style.table.render(style.example), "...")),
            "",
            POSITIONS,
        ]
    )


def step_text(instructions: str, *, task: str, memory: str | None) -> str:
    """The text of the prompt of one step, which follows the screenshot.

    Args:
        instructions: as of `instructions`; an empty text omits them
        task: the instruction of the episode
        memory: the history summary; None or an empty text in the first step
    """
    head = f"{instructions}\n\n" if instructions else ""
    return f"{head}Task: {_one_line(task)}\nHistory summary: {_one_line(memory or '') or NO_MEMORY}"


def prompt_message(text: str, screenshot: bytes, *, earlier: Sequence[bytes] = ()) -> Message:
    """The only user message of a step: earlier screenshots of the episode, the screenshot, then the text."""
    images = [ImagePart.of(image) for image in (*earlier, screenshot)]
    return Message(role="user", content=(*images, TextPart(text=text)))


def action_history(actions: Sequence[Action], table: ActionTable, *, last: int | None = None) -> str:
    """Earlier actions as a memory for agents without summaries: ``Step 3: {"action": …}`` on one line.

    Args:
        actions: all earlier actions of the episode, in order.
        table: of the data set.
        last: how many of them to keep; None for all. Numbers count from the beginning of the episode.
    """
    numbered = list(enumerate(actions, start=1))
    return " ".join(f"Step {number}: {_recorded(action, table)}" for number, action in numbered[-last if last else 0 :])


def _recorded(action: Action, table: ActionTable) -> str:
    """As `ActionTable.render`, also for a recorded action without the position or value that it should have."""
    try:
        return table.render(action)
    except ValueError:
        plain = action.as_json()
        if action.position is not None:
            plain["position"] = [round(number, DECIMALS) for number in action.position]
        return to_json_text({name: json.dumps(value, ensure_ascii=False) for name, value in plain.items()})


def _one_line(text: str) -> str:
    return " ".join(text.split())
