"""Parses calls of models that reason first. Text in ``<think>`` blocks is neither an answer nor a call."""

from __future__ import annotations

from rlcore.contracts import ToolCallParser
from rlcore.types import ToolCall

from rlcore_rollout.parsers.hermes import HermesParser

OPEN, CLOSE = "<think>", "</think>"


class ThinkParser:
    """Removes the reasoning, then parses calls, between ``<tool_call>`` tags unless another parser is given."""

    def __init__(self, calls: ToolCallParser | None = None) -> None:
        self._calls = calls or HermesParser()

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the answer without reasoning and calls, and all calls in order."""
        return self._calls.parse(without_thoughts(text))

    def render(self, call: ToolCall) -> str:
        """Return the text of a call as the model should write it."""
        return self._calls.render(call)


def without_thoughts(text: str, opening: str = OPEN, closing: str = CLOSE) -> str:
    """Return the text outside the blocks. An unclosed block extends to the end, an unopened one from the beginning."""
    first_open, first_close = text.find(opening), text.find(closing)
    if first_open < 0 and first_close < 0:
        return text
    position = 0
    if first_close >= 0 and not 0 <= first_open < first_close:  # the prompt already opened the block
        position = first_close + len(closing)
    kept: list[str] = []
    while (start := text.find(opening, position)) >= 0:
        kept.append(text[position:start])
        end = text.find(closing, start)
        if end < 0:
            return "".join(kept).strip()
        position = end + len(closing)
    return "".join([*kept, text[position:]]).strip()
