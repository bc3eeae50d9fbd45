"""What the agent sees of a page: its elements as text, or a screenshot."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.types import Message, Observation
from rlcore_gui.actions import DECIMALS
from rlcore_gui.prompts import instructions, prompt_message, step_text

from rl_plugin_miniwob.actions import PROMPT
from rl_plugin_miniwob.page import Element, Page, State

ELEMENTS = (
    "Instead of a screenshot, you receive the visible elements of the page: kind, text, state, and a position at which "
    "a click reaches the element."
)


def of_elements(page: Page, state: State, *, memory: str | None, explained: bool) -> Observation:
    """The prompt of a step as text."""
    head = f"{instructions(PROMPT)}\n{ELEMENTS}" if explained else ""
    text = step_text(head, task=state.task, memory=memory)
    lines = [line(element) for element in page.elements()]
    return Observation(messages=(Message(role="user", content="\n".join([text, "Elements:", *lines])),))


def of_screenshot(page: Page, state: State, *, memory: str | None, explained: bool) -> Observation:
    """The prompt of a step with a screenshot, in the form of recorded pages."""
    image = page.screenshot()
    text = step_text(instructions(PROMPT) if explained else "", task=state.task, memory=memory)
    return Observation(messages=(prompt_message(text, image),), images=(image,))


def line(element: Element) -> str:
    """An element as a line, such as ``button "OK" [0.250, 0.500]``."""
    position = ", ".join(f"{number:.{DECIMALS}f}" for number in element.position)
    parts: Sequence[str] = (element.kind, f'"{element.text}"' if element.text else "", *element.notes, f"[{position}]")
    return " ".join(filter(None, parts))


__all__ = ["line", "of_elements", "of_screenshot"]
