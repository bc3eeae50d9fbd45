"""The answer of a GUI agent: four sections in tags.

::

    <think>
    <Progress Estimation>What is done so far.</Progress Estimation>
    <Decision Reasoning>Why this action is next.</Decision Reasoning>
    <action>{"action": "CLICK", "value": null, "position": [0.500, 0.250]}</action>
    <History Summary>The memory for the next step.</History Summary>
    </think>

The names of the sections are constants of this module. Prompts, labels, parser and rewards use them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlcore_gui.actions import Action, ActionTable, Unreadable, UnreadableAction

PROGRESS = "Progress Estimation"
REASONING = "Decision Reasoning"
ACTION = "action"
SUMMARY = "History Summary"
SECTIONS = (PROGRESS, REASONING, ACTION, SUMMARY)
"""The sections of an answer, in order."""
FRAME = "think"
"""The tag around the sections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer."""

    progress: str
    reasoning: str
    action: Action
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnswer:
    """What a text contains. A text without a readable action has the reason in ``unreadable``."""

    action: Action | None
    unreadable: Unreadable | None
    summary: str | None
    """The only history summary of the text, without white space around it; None if it is missing, empty or repeated."""
    strict: bool
    """Whether the text follows the grammar: the frame with exactly one of each section, none empty, in order, nothing
    but white space between and outside of them, and a readable action."""


def opening(section: str) -> str:
    """The tag that begins a section or the frame."""
    return f"<{section}>"


def closing(section: str) -> str:
    """The tag that ends a section or the frame."""
    return f"</{section}>"


def skeleton(contents: tuple[str, str, str, str]) -> str:
    """The text of an answer with these contents of its sections."""
    lines = [f"{opening(name)}{text}{closing(name)}" for name, text in zip(SECTIONS, contents, strict=True)]
    return "\n".join([opening(FRAME), *lines, closing(FRAME)])


def render(answer: Answer, table: ActionTable) -> str:
    """The text of an answer. `parse` reads it as strict, with the same action and summary.

    Raises:
        ValueError: a section is empty or contains a tag, or the action does not fit the table.
    """
    for name, text in ((PROGRESS, answer.progress), (REASONING, answer.reasoning), (SUMMARY, answer.summary)):
        if not text.strip():
            raise ValueError(f"the section {name!r} of an answer must not be empty")
    contents = (answer.progress.strip(), answer.reasoning.strip(), table.render(answer.action), answer.summary.strip())
    text = skeleton(contents)
    if not _follows_grammar(text):
        raise ValueError(f"the sections of an answer must not contain its tags: {text[:200]!r}")
    return text


def parse(text: str, table: ActionTable) -> ParsedAnswer:
    """Read an answer. The action is that of the only pair of ``<action>`` tags.

    A text without these tags is read as an action as a whole. Several actions are unreadable, so that no answer can
    try more than one.
    """
    action, unreadable = None, None
    try:
        action = table.parse(_action_text(text))
    except UnreadableAction as error:
        unreadable = error.reason
    return ParsedAnswer(
        action=action,
        unreadable=unreadable,
        summary=section(text, SUMMARY),
        strict=action is not None and _follows_grammar(text),
    )


def section(text: str, name: str) -> str | None:
    """The content of a section, without white space around it; None if it is missing, empty or repeated."""
    begin, end = opening(name), closing(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        return None
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[start:stop].strip() or None


def _action_text(text: str) -> str:
    begin, end = opening(ACTION), closing(ACTION)
    tags = text.count(begin), text.count(end)
    if tags == (0, 0) and text.lstrip().startswith("{"):
        return text
    if max(tags) > 1:
        raise UnreadableAction("several actions")
    if tags != (1, 1) or text.index(end) < text.index(begin):
        raise UnreadableAction("no action")
    return text[text.index(begin) + len(begin) : text.index(end)]


def _follows_grammar(text: str) -> bool:
    tags = [opening(FRAME), *(tag for name in SECTIONS for tag in (opening(name), closing(name))), closing(FRAME)]
    if any(text.count(tag) != 1 for tag in tags):
        return False
    position = 0
    for tag in tags:
        found = text.find(tag, position)
        if found < 0:
            return False
        inside_section = tag in map(closing, SECTIONS)
        if bool(text[position:found].strip()) != inside_section:
            return False
        position = found + len(tag)
    return not text[position:].strip()
