"""Parses calls of models that reason first. Text in ``<think>`` blocks is neither an answer nor a call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from rlcore.contracts import ToolCallParser
from rlcore.types import ToolCall

from rlcore_rollout.parsers.hermes import MOST_UNREADABLE, HermesParser

OPEN, CLOSE = "<think>", "</think>"


@runtime_checkable
class StructuredCalls(Protocol):
    """A parser that finds the end of a call by its structure, whatever its arguments contain."""

    opening: str
    """The text before each call."""

    def end_of_call(self, text: str, start: int) -> int | None:
        """Return the end of the whole call that follows an opening; None if it is not one."""
        ...


class ThinkParser:
    """Removes the reasoning, then parses calls, between ``<tool_call>`` tags unless another parser is given."""

    def __init__(self, calls: ToolCallParser | None = None) -> None:
        self._calls = calls or HermesParser()

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the answer without reasoning and calls, and all calls in order."""
        structured = self._calls if isinstance(self._calls, StructuredCalls) else None
        return self._calls.parse(without_thoughts(text, calls=structured))

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        return self._calls.render(call)


def without_thoughts(text: str, opening: str = OPEN, closing: str = CLOSE, calls: StructuredCalls | None = None) -> str:
    """Return the text outside the blocks. An unclosed block extends to the end, an unopened one from the beginning.

    Tags inside of a whole call of ``calls`` are part of its arguments.
    """
    tags = list(_tags(text, opening, closing, calls))
    position = 0
    if tags and tags[0][0] == closing:  # the prompt already opened the block
        position = tags.pop(0)[2]
    kept: list[str] = []
    inside = False
    for tag, start, end in tags:
        if tag == opening and not inside:
            kept.append(text[position:start])
            inside = True
        elif tag == closing and inside:
            position, inside = end, False
    kept += [] if inside else [text[position:]]
    return "".join(kept).strip() if tags or position else text


def _tags(text: str, opening: str, closing: str, calls: StructuredCalls | None) -> Iterator[tuple[str, int, int]]:
    """The tags outside of calls, with their places."""
    begins = calls.opening if calls is not None else opening
    pattern = re.compile("|".join(map(re.escape, dict.fromkeys((opening, closing, begins)))))
    position = unreadable = 0
    while (found := pattern.search(text, position)) is not None:
        position = found.end()
        if found[0] in (opening, closing):
            yield found[0], *found.span()
        elif calls is not None and unreadable < MOST_UNREADABLE:
            end = calls.end_of_call(text, position)
            unreadable += end is None
            position = end or position
