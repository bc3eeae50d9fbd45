"""What the teacher is asked about a step, and the three sections of its answer."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore_gui.actions import Action, ActionTable
from rlcore_gui.answers import ACTION, FRAME, PROGRESS, REASONING, SUMMARY, closing, opening
from rlcore_gui.prepare.pseudo_labels import TEXTS
from rlcore_gui.steps import GuiStep

SECTIONS = (PROGRESS, REASONING, SUMMARY)
"""What the teacher writes, in this order."""
_TAGS = tuple(tag(name).casefold() for name in (*SECTIONS, ACTION, FRAME) for tag in (opening, closing))
_NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
"""Unicode categories of characters that are no text: control, unassigned and private ones, and lone surrogates."""
LONGEST = 2000
"""Limit of a section in characters. One or two sentences have a tenth of it."""


class UnreadableSections(ValueError):
    """An answer that is not exactly the three sections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabels:
    """What a teacher wrote about one step, each part on one line."""

    progress: str
    reasoning: str
    summary: str
    """The memory of the next step."""

    def as_json(self) -> dict[str, str]:
        """The labels as in a file."""
        return dict(zip(TEXTS, (self.progress, self.reasoning, self.summary), strict=True))

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> StepLabels:
        """The labels of a file.

        Raises:
            ValueError: a part is missing or not text.
        """
        texts = [plain.get(key) for key in TEXTS]
        for key, text in zip(TEXTS, texts, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{key} is missing or not text")
        progress, reasoning, summary = map(str, texts)
        return cls(progress=progress, reasoning=reasoning, summary=summary)


NO_SUMMARY = "none, this is the first step"
EXAMPLE_TASK = "Set an alarm for 7:30"
EXAMPLE_SUMMARY = "Opened the clock app from the home screen."
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


def read_sections(text: str) -> StepLabels:
    """The sections of an answer that has each of them once, in order, and nothing else.

    Raises:
        UnreadableSections: the answer is anything else; the message is a sentence for the teacher.
    """
    tags = [(opening(name), closing(name)) for name in SECTIONS]
    for begin, end in tags:
        if text.count(begin) != 1 or text.count(end) != 1:
            raise UnreadableSections(f"the answer must contain {begin} and {end} exactly once")
    places = [text.index(tag) for pair in tags for tag in pair]
    if places != sorted(places):
        raise UnreadableSections(f"the sections must be in the order {', '.join(SECTIONS)}")
    contents, place = [], 0
    for name, (begin, end) in zip(SECTIONS, tags, strict=True):
        start, stop = text.index(begin), text.index(end)
        if text[place:start].strip():
            raise UnreadableSections("there must be no text outside of the sections")
        contents.append(_content(text[start + len(begin) : stop], name))
        place = stop + len(end)
    if text[place:].strip():
        raise UnreadableSections("there must be no text outside of the sections")
    progress, reasoning, summary = contents
    return StepLabels(progress=progress, reasoning=reasoning, summary=summary)


def _content(text: str, name: str) -> str:
    content = " ".join(text.split())
    if not content:
        raise UnreadableSections(f"the section {name} must not be empty")
    if len(content) > LONGEST:
        raise UnreadableSections(f"the section {name} must have one or two sentences")
    if any(tag in content.casefold() for tag in _TAGS):
        raise UnreadableSections(f"the section {name} must not contain other tags")
    if any(unicodedata.category(character) in _NO_TEXT for character in content) or "\ufffd" in content:
        raise UnreadableSections(f"the section {name} must contain only text")
    return content
