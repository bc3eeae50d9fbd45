"""The chat format of a model folder's own Jinja template.

A template renders whole conversations. A rollout appends to the tokens that it has, so the rendering of a conversation
must begin with that of every earlier one. `rlcore_rollout.chat.template_checks` tries this when the format is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.contracts import ToolCallParser
from rlcore.errors import UserError
from rlcore.json_files import read_text
from rlcore.models.config_file import MAX_BYTES
from rlcore.types import Message, ToolSchema

from rlcore_rollout.chat.chatml_tools import chatml_tools
from rlcore_rollout.chat.completions import CompletionReader
from rlcore_rollout.chat.renderer import Block, Piece, Renderer
from rlcore_rollout.chat.template import ChatTemplate
from rlcore_rollout.chat.template_checks import (
    ANSWERED,
    CALLS,
    FIX,
    FIX_TOOLS,
    RESULTS,
    TEMPLATE_LINE,
    TOOLS,
    Proof,
    after_turn,
    any_of,
    first_difference,
    prove,
)
from rlcore_rollout.chat.tokenizer import ChatTokenizer


class TemplateFormat(CompletionReader):
    """Conversations as the template of the model folder renders them.

    If the template has ChatML turns and shows no tools, `ChatMLTools` renders conversations with tools. Images are
    rejected. Text from users, data and tools never becomes a special token, ``strftime_now`` is a fixed date, and an
    assistant's turn keeps its sampled tokens.

    Args:
        folder: the model folder
        parser: the parser of tool calls; None detects it from the template
        template_kwargs: further variables of the template
        template: a file with another template
        hide_tools: show no tools to the model, for a template that cannot show them
    """

    def __init__(
        self,
        folder: Path,
        parser: ToolCallParser | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        template: Path | None = None,
        hide_tools: bool = False,
    ) -> None:
        self.tokenizer = ChatTokenizer(folder)
        source, where = (_read(template), template) if template else (self.tokenizer.config["chat_template"], folder)
        if not source:
            raise UserError(
                "the model folder has no chat template", where=str(folder), fix="set model.chat_format=plain"
            )
        self._template = ChatTemplate(source, self.tokenizer, template_kwargs or {}, where)
        self.proof: Proof = prove(self._template, self.tokenizer, parser)
        """What the template can show, and the reasons why not."""
        self.parser = self.proof.parser
        self._hides_tools = hide_tools
        own = hide_tools or TOOLS not in self.proof.missing
        self._with_tools = None if own else chatml_tools(self._template, self.tokenizer, parser)
        self._renderer = Renderer(self.tokenizer)
        self._ends = any_of(self.proof.ends)
        added = self.tokenizer.added
        ids = (*(added[token] for token in self.proof.ends), *self.tokenizer.end_token_ids)
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys(ids))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """The first observation with the tools, up to and including the assistant's header."""
        if tools and self._with_tools is not None:
            return self._with_tools.prompt(messages, tools)
        tools = self._shown(tools)
        if tools:
            self._require(CALLS)
        return self._renderer.encode(self._template.pieces(self._template.render(messages, tools, header=True)))

    def observation(self, messages: Sequence[Message], completion_ids: Sequence[int]) -> list[int]:
        """The text after a completion: the end of its turn if it is missing, the new messages, the next header.

        The turn before the messages is a stand-in: what follows a turn does not depend on its text.
        """
        if self._with_tools is not None:
            return self._with_tools.observation(messages, completion_ids)
        results = bool(messages) and messages[0].role == "tool"
        self._require(RESULTS if results else ANSWERED)
        text = after_turn(self._template, messages, self._ends)
        pieces = self._template.pieces(text)
        if not completion_ids or completion_ids[-1] not in self.stop_token_ids:
            pieces.insert(0, Piece(self.proof.ends[0], "template"))
        return self._renderer.encode(pieces)

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> tuple[list[int], list[bool]]:
        """A complete demonstration as ids [T] and loss mask [T], true on the assistant's turns and their end tokens.

        The ids are those of the whole rendering, with what the template writes after the last turn.

        Raises:
            UserError: the template renders an earlier part of this conversation differently, or cannot show its tools.
        """
        calls = any(message.tool_calls for message in messages)
        if (tools or calls) and self._with_tools is not None:
            return self._with_tools.conversation(messages, tools)
        tools = self._shown(tools)
        if calls:
            self._require(TOOLS)
        blocks: list[Block] = []
        done = ""
        for place, message in enumerate(messages):
            if message.role != "assistant":
                continue
            header = self._continued(done, messages[:place], tools, header=True)
            turn = self._continued(header, messages[: place + 1], tools, header=False)
            end = self._ends.search(turn, len(header))
            turn = turn[: end.end()] if end else turn
            blocks.append(Block(tuple(self._template.pieces(header[len(done) :])), sampled=False))
            blocks.append(Block(tuple(self._template.pieces(turn[len(header) :])), sampled=True))
            done = turn
        whole = self._continued(done, messages, tools, header=False)
        blocks.append(Block(tuple(self._template.pieces(whole[len(done) :])), sampled=False))
        found = self._renderer.encode_blocks(blocks)
        return found.ids, found.mask

    def description(self) -> Sequence[str]:
        """Return lines for the log: the parser, and what the template cannot show."""
        if self._with_tools is not None:
            return [f"{TEMPLATE_LINE}, which shows no tools: they are shown as in the chat format qwen2.5"]
        if self._hides_tools:
            return [f"{TEMPLATE_LINE}, tools are hidden (model.hide_tools)", *self.proof.description()[1:]]
        return self.proof.description()

    def _shown(self, tools: Sequence[ToolSchema]) -> Sequence[ToolSchema]:
        """Return the tools that the template shows. Raises `UserError` if it cannot show them."""
        if self._hides_tools:
            return ()
        if tools:
            self._require(TOOLS)
        return tools

    def _continued(self, done: str, messages: Sequence[Message], tools: Sequence[ToolSchema], *, header: bool) -> str:
        """Return a rendering that begins with an earlier one."""
        text = self._template.render(messages, tools, header=header)
        if text.startswith(done):
            return text
        raise UserError(
            "the chat template renders an earlier part of a conversation differently when messages follow",
            found=first_difference(self._template, done, text),
            where=str(self._template.where),
            fix=FIX,
        )

    def _require(self, ability: str) -> None:
        if reason := self.proof.missing.get(ability):
            fix = FIX_TOOLS if ability == TOOLS else FIX
            message = f"the chat template cannot show {ability}"
            raise UserError(message, found=reason, where=str(self._template.where), fix=fix)


def _read(path: Path) -> str:
    try:
        return read_text(path, limit=MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UserError(
            "the chat template cannot be read", found=str(error), where=str(path), fix="model.chat_template=FILE"
        ) from error
