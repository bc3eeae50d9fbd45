"""Calls of a model that thinks first: what stands in ``<think>`` blocks is neither answer nor call."""

from __future__ import annotations

from rlcore.types import ToolCall

from rlcore_rollout.parsers.hermes import HermesParser

OPEN, CLOSE = "<think>", "</think>"


class ThinkParser:
    """Removes the thinking, then reads calls between ``<tool_call>`` tags."""

    def __init__(self) -> None:
        self._calls = HermesParser()

    def parse(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The answer without thoughts and calls, and all calls in order."""
        return self._calls.parse(without_thoughts(text))

    def render(self, call: ToolCall) -> str:
        """The text of a call as the model should write it."""
        return self._calls.render(call)


def without_thoughts(text: str) -> str:
    """The text outside the blocks. One that is never closed takes the rest, one never opened the beginning."""
    first_open, first_close = text.find(OPEN), text.find(CLOSE)
    if first_open < 0 and first_close < 0:
        return text
    position = 0
    if first_close >= 0 and not 0 <= first_open < first_close:  # the prompt already opened the block
        position = first_close + len(CLOSE)
    kept: list[str] = []
    while (start := text.find(OPEN, position)) >= 0:
        kept.append(text[position:start])
        end = text.find(CLOSE, start)
        if end < 0:
            return "".join(kept).strip()
        position = end + len(CLOSE)
    return "".join([*kept, text[position:]]).strip()
