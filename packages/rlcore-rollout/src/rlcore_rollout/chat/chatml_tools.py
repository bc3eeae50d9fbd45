"""Tools for a template of ChatML turns that shows none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlcore.contracts import ToolCallParser
from rlcore.errors import UserError
from rlcore.types import Message, ToolSchema

from rlcore_rollout.chat.qwen import QwenFormat
from rlcore_rollout.chat.renderer import Picture, Piece, Renderer, template
from rlcore_rollout.chat.template import ChatTemplate
from rlcore_rollout.chat.tokenizer import ChatTokenizer
from rlcore_rollout.parsers.hermes import HermesParser

_QUESTION = Message(role="user", content=" First question\n")
_CONVERSATIONS = (
    (_QUESTION,),
    (
        Message(role="system", content=" Some rules\n"),
        _QUESTION,
        Message(role="assistant", content="Some answer"),
        Message(role="user", content="\nSecond question "),
    ),
)
"""Tried on both renderers. The white space shows whether a template trims what it is given."""


class ChatMLTools(QwenFormat):
    """The turns of a folder's template, with tools, calls and their results in the form of Qwen2.5.

    The beginning of a conversation and the system message of one that has none are those of the template.
    """

    def __init__(self, template: ChatTemplate, tokenizer: ChatTokenizer, parser: ToolCallParser | None) -> None:
        super().__init__(tokenizer.folder, parser)
        text = template.readable(template.render((_QUESTION,), (), header=True))
        self._beginning, _, _ = text.partition(self.start)
        system = re.compile(f"{re.escape(self.start)}system\n(.*?){re.escape(self.end)}\n", re.DOTALL)
        found = system.match(text, len(self._beginning))
        self._system = found[1] if found else None

    def default_parser(self) -> ToolCallParser:
        """JSON between ``<tool_call>`` tags."""
        return HermesParser()

    def _opening(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[list[Piece | Picture], Sequence[Message]]:
        pieces, rest = super()._opening(messages, tools)
        return [template(self._beginning), *pieces], rest

    def _default_system(self) -> str | None:
        return self._system


def chatml_tools(template: ChatTemplate, tokenizer: ChatTokenizer, parser: ToolCallParser | None) -> ChatMLTools | None:
    """Return a renderer of conversations with tools; None if the turns of the template are not those of ChatML.

    Args:
        template: a template that shows no tools
        tokenizer: its tokenizer
        parser: the parser of tool calls; None for JSON between ``<tool_call>`` tags
    """
    if not {ChatMLTools.start, ChatMLTools.end} <= tokenizer.added.keys():
        return None
    encode = Renderer(tokenizer).encode
    try:
        made = ChatMLTools(template, tokenizer, parser)
        same = all(
            encode(template.pieces(template.render(messages, (), header=True))) == made.prompt(messages)
            for messages in _CONVERSATIONS
        )
    except UserError:
        return None
    return made if same else None
