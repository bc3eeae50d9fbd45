"""A model folder's own Jinja template, rendered so that the origin of each character is known.

Text from outside must not become a special token. In the texts that a template receives, the first character of every
special token is therefore hidden: it is replaced by a character of a private area, which templates pass on like any
other, and which is restored afterwards. Templates that inspect such a text see the rest of it unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError
from rlcore.errors import UserError
from rlcore.types import Message, ToolCall, ToolSchema, thaw

from rlcore_rollout.chat.chatml import text_of
from rlcore_rollout.chat.renderer import MARKUP, Piece
from rlcore_rollout.chat.safe_jinja import LONGEST_TEMPLATE, TemplateSandbox
from rlcore_rollout.chat.tokenizer import ChatTokenizer

HIDDEN = 0x10F000
"""First character of the private area that stands for hidden characters."""
FIXED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""Variables that the format sets."""
_ID = re.compile(r"[A-Za-z0-9]{9}")


class ChatTemplate:
    """A compiled template with the special tokens and arguments that it receives.

    Args:
        source: the text of the template
        tokenizer: the tokenizer whose special tokens outside text must not contain
        arguments: further variables of the template, such as ``enable_thinking``
        where: the file of the template, for messages
    """

    def __init__(self, source: str, tokenizer: ChatTokenizer, arguments: Mapping[str, Any], where: Path) -> None:
        self.source, self.where = source, where
        if taken := sorted(FIXED.intersection(arguments)):
            raise UserError(
                "model.chat_template_kwargs cannot set what the chat format sets",
                found=taken[0],
                fix=f"remove {taken[0]}",
            )
        self._variables = {**_named_tokens(tokenizer), **arguments}
        visible = {token for token in tokenizer.added if token.strip(" \t\r\n\u2581")}
        forbidden = {token for token in visible.intersection(tokenizer.special) if token not in MARKUP}
        self._outside = _Mask(visible, ())
        self._assistant = _Mask(forbidden, visible - forbidden)
        self._sandbox = TemplateSandbox()
        self._template = self._compiled()

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSchema], *, header: bool) -> str:
        """Return the conversation with hidden characters, and with the header of an assistant's turn if asked.

        Raises:
            UserError: the template rejects the messages, or exceeds a limit.
        """
        variables = {
            **self._variables,
            "messages": [self._shown(message) for message in messages],
            "tools": self._outside.hide_all([tool.as_json() for tool in tools]) or None,
            "add_generation_prompt": header,
        }
        try:
            return self._sandbox.render(self._template, variables)
        except Exception as error:  # of the template: any mistake in it, and any limit
            raise UserError(
                "the chat template cannot show these messages",
                found=f"{type(error).__name__}: {error}"[:300],
                where=str(self.where),
            ) from error

    def pieces(self, text: str) -> list[Piece]:
        """Return the pieces of a rendered text: hidden characters are restored as text from outside."""
        found = []
        for place, part in enumerate(self._outside.split(text)):
            if part:
                found.append(Piece(self._outside.restored(part), "outside") if place % 2 else Piece(part, "template"))
        return found

    def readable(self, text: str) -> str:
        """Return a rendered text with its hidden characters restored."""
        return "".join(piece.text for piece in self.pieces(text))

    def _compiled(self) -> Template:
        if len(self.source) > LONGEST_TEMPLATE:
            found = f"{len(self.source):,} characters"
            raise UserError(
                f"a chat template has up to {LONGEST_TEMPLATE:,} characters", found=found, where=str(self.where)
            )
        try:
            return self._sandbox.from_string(self.source)
        except Exception as error:  # the parser recurses, and Python compiles what it generates
            line = f", line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise UserError(
                "the chat template cannot be read",
                found=f"{type(error).__name__}: {error}"[:300],
                where=f"{self.where}{line}",
                fix="correct it, or set model.chat_format or model.chat_template",
            ) from error

    def _shown(self, message: Message) -> dict[str, Any]:
        mask = self._assistant if message.role == "assistant" else self._outside
        shown: dict[str, Any] = {"role": message.role, "content": mask.hide(text_of(message))}
        if message.tool_calls:
            shown["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.role == "tool":
            shown["name"] = self._outside.hide(message.name or "")
            shown["tool_call_id"] = template_id(message.tool_call_id or "")
        return shown

    def _call(self, call: ToolCall) -> dict[str, Any]:
        function = {"name": call.name, "arguments": thaw(call.arguments or {})}
        return {"id": template_id(call.id), "type": "function", "function": self._assistant.hide_all(function)}


def template_id(id: str) -> str:
    """Return the id of a call as templates require it: Mistral's accept 9 letters and digits."""
    if _ID.fullmatch(id):
        return id
    number = id.removeprefix("call_")
    return (
        f"call{number:0>5}" if number.isdecimal() and len(number) <= 5 else hashlib.sha256(id.encode()).hexdigest()[:9]
    )


class _Mask:
    """Hides the first characters of tokens."""

    def __init__(self, tokens: set[str], allowed: Sequence[str] | set[str]) -> None:
        firsts = sorted({token[0] for token in tokens if token[0] not in '"\\'})
        self._codes = {ord(character): chr(HIDDEN + place) for place, character in enumerate(firsts)}
        private = [chr(HIDDEN + place) for place in range(2 * len(firsts))]
        for place, character in enumerate(private[: len(firsts)]):
            self._codes[ord(character)] = private[len(firsts) + place]
        self._back = {ord(code): chr(character) for character, code in self._codes.items()}
        kept = "|".join(map(re.escape, sorted(allowed, key=len, reverse=True)))
        self._kept = re.compile(f"({kept})") if kept else None
        self._hidden = re.compile(f"([{re.escape(''.join(private))}]+)") if private else None

    def hide(self, text: str) -> str:
        """Return the text without any token, apart from those that are allowed."""
        if self._kept is None:
            return text.translate(self._codes)
        parts = self._kept.split(text)
        return "".join(part if place % 2 else part.translate(self._codes) for place, part in enumerate(parts))

    def hide_all(self, value: Any) -> Any:
        """Return a JSON value with all of its texts hidden."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide_all(item) for key, item in value.items()}
        return [self.hide_all(item) for item in value] if isinstance(value, (list, tuple)) else value

    def split(self, text: str) -> list[str]:
        """Return the visible and the hidden parts of a text in turn."""
        return self._hidden.split(text) if self._hidden else [text]

    def restored(self, part: str) -> str:
        """Return the characters that a hidden part stands for."""
        return part.translate(self._back)


def _named_tokens(tokenizer: ChatTokenizer) -> dict[str, str]:
    """Return the tokens that a template knows by name, such as ``bos_token``."""
    named = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = tokenizer.named_token(name)
        if value is not None:
            named[name] = value
    return named
