"""The chat formats of the Qwen models. The tokens equal those of the models' templates, with these differences.

All formats: text from users, data and tools never becomes a special token, unlike in the templates. An assistant turn
that begins with a line break keeps the sampled tokens, a header and then the text; the templates merge the two line
breaks into one token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rlcore.contracts import ToolCallParser
from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from rlcore.types import Message, ToolSchema

from rlcore_rollout.chat.chatml import ChatMLFormat
from rlcore_rollout.chat.renderer import Picture, Piece, template
from rlcore_rollout.parsers.hermes import HermesParser
from rlcore_rollout.parsers.think import ThinkParser

_BEFORE_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_AFTER_TOOLS = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)
_NO_THOUGHT = "<think>\n\n</think>\n\n"
_SYSTEM_IN_TEMPLATE = re.compile(r"<\|im_start\|>system(?:\\n|\n)([^'<]+)<\|im_end\|>")


class QwenFormat(ChatMLFormat):
    """Tools as JSON schemas in the system turn, tool answers together in a turn of the user."""

    def _opening(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[list[Piece | Picture], Sequence[Message]]:
        given = messages[0] if messages and messages[0].role == "system" else None
        default = self._default_system()
        system: list[Piece | Picture] = [] if default is None else [Piece(default, "outside")]
        if given is not None:
            system = self._content(given)
        rest = messages[1:] if given is not None else messages
        if not system and not tools:
            return [], rest
        pieces = [template(f"{self.start}system\n"), *system]
        if tools:
            pieces.append(template(("\n\n" if system else "") + _BEFORE_TOOLS))
            for tool in tools:
                pieces.append(Piece("\n" + json.dumps(tool.as_json(), ensure_ascii=False), "outside"))
            pieces.append(template(_AFTER_TOOLS))
        pieces.append(template(f"{self.end}\n"))
        return pieces, rest

    def _default_system(self) -> str | None:
        return None

    def _shown(self, messages: Sequence[Message]) -> list[Piece | Picture]:
        pieces: list[Piece | Picture] = []
        for answers, group in groupby(messages, key=lambda message: message.role == "tool"):
            if not answers:
                pieces += super()._shown(list(group))
                continue
            pieces.append(template(f"{self.start}user"))
            for message in group:
                pieces.append(template("\n<tool_response>\n"))
                pieces += self._content(message)
                pieces.append(template("\n</tool_response>"))
            pieces.append(template(f"{self.end}\n"))
        return pieces


class Qwen25Format(QwenFormat):
    """Qwen2.5's instruct models, and Qwen2's.

    Conversations without a system message get the default one of the folder's template.
    """

    system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    """The default system message of a folder without a template."""

    def default_parser(self) -> ToolCallParser:
        """JSON between ``<tool_call>`` tags."""
        return HermesParser()

    def _default_system(self) -> str:
        match = _SYSTEM_IN_TEMPLATE.search(self.tokenizer.config["chat_template"])
        if match is None:
            return self.system
        return re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], match[1])


class Qwen25VLFormat(Qwen25Format):
    """Qwen2-VL and Qwen2.5-VL, which have the same template.

    The template shows no tools and no calls. Both have the form of Qwen2.5 here, and tool answers may contain images.
    """

    system = "You are a helpful assistant."
    shows_images_in_answers = True


class Qwen3VLFormat(QwenFormat):
    """Qwen3-VL's instruct models.

    The template drops images in system messages, and system messages after the first message; both are shown here. It
    drops images in an assistant's message, too; they are rejected here.
    """

    def default_parser(self) -> ToolCallParser:
        """JSON between ``<tool_call>`` tags outside ``<think>`` blocks."""
        return ThinkParser()


class Qwen3Format(QwenFormat):
    """Qwen3, with or without thinking.

    An assistant's text, including its ``<think>`` block, stays in the history exactly as it was sampled or given. The
    template instead (1) drops the block from turns before the last question of a user, so that
    its rendering of a longer conversation does not begin with that of the shorter one; (2) puts an empty block before
    the conversation's last turn where there is none; (3) trims the line breaks around and inside the block.

    Args:
        folder: the model folder
        parser: the parser of tool calls
        template_kwargs: ``enable_thinking``; if false, an empty block follows the header of every assistant's turn
        images: how the model sees images; None for a model that sees none
    """

    def __init__(
        self,
        folder: Path,
        parser: ToolCallParser | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        images: ImageProcessor | None = None,
    ) -> None:
        super().__init__(folder, parser, images)
        given = dict(template_kwargs or {})
        thinking = given.pop("enable_thinking", True)
        if given or not isinstance(thinking, bool):
            raise UserError(
                "the chat format qwen3 takes only enable_thinking, true or false",
                found=", ".join(given) or f"enable_thinking={thinking!r}",
                where="model.chat_template_kwargs",
                fix="remove it, or set model.chat_format=template",
            )
        self._thinking = thinking

    def _header(self) -> Piece:
        header = super()._header()
        return header if self._thinking else template(header.text + _NO_THOUGHT)

    def _written(self, message: Message) -> list[Piece | Picture]:
        pieces = super()._written(message)
        if pieces and not self._thinking and isinstance(first := pieces[0], Piece):
            pieces[0] = Piece(first.text.removeprefix(_NO_THOUGHT), first.writer)
        return pieces

    def default_parser(self) -> ToolCallParser:
        """JSON between ``<tool_call>`` tags outside ``<think>`` blocks."""
        return ThinkParser()
