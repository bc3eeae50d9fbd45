"""Completions of the policy as messages, for every chat format."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.contracts import ToolCallParser
from rlcore.types import Message

from rlcore_rollout.chat.tokenizer import ChatTokenizer


class CompletionReader:
    """Decodes and parses completions with the tokenizer, the parser and the stop tokens of a chat format."""

    tokenizer: ChatTokenizer
    parser: ToolCallParser
    stop_token_ids: tuple[int, ...]

    def parse(self, completion_ids: Sequence[int], finish_reason: str) -> Message:
        """The assistant's message with its tool calls. A truncated completion is never parsed for calls."""
        ids = list(completion_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        text = self.decode(ids)
        if finish_reason == "length":
            return Message(role="assistant", content=text)
        content, calls = self.parser.parse(text)
        return Message(role="assistant", content=content, tool_calls=calls)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, including special tokens."""
        return self.tokenizer.decode(token_ids)
