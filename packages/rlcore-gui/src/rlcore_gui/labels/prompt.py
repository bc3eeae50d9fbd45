"""What the teacher is asked about a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore_gui.actions import Action, ActionTable
from rlcore_gui.answers import PROGRESS, REASONING, SUMMARY, closing, opening
from rlcore_gui.labels.sections import StepLabels
from rlcore_gui.steps import GuiStep

NO_SUMMARY = "none, this is the first step"
EXAMPLE_TASK = "Set an alarm for 7:30"
EXAMPLE_SUMMARY = "Opened the clock app from the home screen."
EXAMPLE_ACTION = Action(name="CLICK", position=(0.5, 0.9))
EXAMPLE = StepLabels(
    progress="The clock app is open and shows the list of alarms. The alarm for 7:30 does not exist yet.",
    reasoning="A new alarm has to be added first, and the round button with a plus at the bottom does that.",
    summary="Opened the clock app and pressed the button that adds an alarm. The time has to be set to 7:30 next.",
)


def system_prompt(screen: str) -> str:
    """The instructions, with one example.

    Args:
        screen: what the recorded person works on, such as ``an Android phone``
    """
    wanted = StepLabels(
        progress="what is done for the task so far, and what is left",
        reasoning="what on the screenshot matters for the next action, and why this action is right",
        summary="what later steps have to know about all steps so far, with the present action as done",
    )
    return "\n".join(
        [
            f"You annotate recordings of people who carry out tasks on {screen}.",
            "For one step of a recording, you see the task, a summary of the earlier steps, the screenshot before the "
            "action, and the action that the person took.",
            "Write down the thoughts that lead to this action. Answer with exactly these three sections, in this "
            "order, each with one or two sentences and nothing before, between or after them:",
            sections(wanted),
            "",
            "Rules:",
            "- Write as the person would think before the action. Never mention that the action was given.",
            "- Use only what the screenshot, the task and the summary show.",
            "- Describe elements of the screen by their text or appearance, never by coordinates.",
            "",
            "Example",
            *_facts(EXAMPLE_TASK, '{"action": "CLICK", "position": [0.500, 0.900]}', EXAMPLE_SUMMARY, []),
            "Answer:",
            sections(EXAMPLE),
        ]
    )


def sections(labels: StepLabels) -> str:
    """The answer of a teacher with these labels."""
    parts = ((PROGRESS, labels.progress), (REASONING, labels.reasoning), (SUMMARY, labels.summary))
    return "\n".join(f"{opening(name)}{text}{closing(name)}" for name, text in parts)


def question(
    step: GuiStep, table: ActionTable, *, memory: str | None, since: Sequence[Action], complaint: str | None = None
) -> str:
    """The text of the question about a step.

    Args:
        step: the step
        table: writes the actions
        memory: the summary after the last step that has one
        since: actions after this summary and before the step
        complaint: why the teacher's previous answer was not accepted
    """
    lines = _facts(step.task, action_text(step.action, table), memory, [action_text(each, table) for each in since])
    if complaint:
        lines += ["", f"An earlier answer was not accepted: {complaint}. Answer in the required form."]
    return "\n".join(lines)


def request_messages(system: str, text: str, image: str) -> list[dict[str, Any]]:
    """The messages of a request. The image is a data URI."""
    content = [{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": text}]
    return [{"role": "system", "content": system}, {"role": "user", "content": content}]


def action_text(action: Action, table: ActionTable) -> str:
    """The action as in the answers of the agent; its name and value where it does not fit the table."""
    try:
        return table.render(action)
    except ValueError:
        return f"{action.name} {action.value}" if action.value else action.name


def _facts(task: str, action: str, memory: str | None, since: Sequence[str]) -> list[str]:
    if memory is None:
        memory = NO_SUMMARY if not since else "none"
    lines = [f"Task: {task}", f"Summary of the earlier steps: {memory}"]
    if since:
        lines.append(f"Actions after the summary: {'; '.join(since)}")
    return [*lines, f"Action of this step: {action}"]
