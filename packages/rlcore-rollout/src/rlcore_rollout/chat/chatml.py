"""The base of ChatML chat formats: turns between a start and an end token, the loss mask and parsing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from rlcore.contracts import ToolCallParser
from rlcore.errors import UserError
from rlcore.types import Message, ToolSchema

from rlcore_rollout.chat.completions import CompletionReader
from rlcore_rollout.chat.renderer import Block, Piece, Renderer
from rlcore_rollout.chat.tokenizer import ChatTokenizer


class ChatMLFormat(CompletionReader, ABC):
    """Consecutive turns of the form ``<|im_start|>role`` newline text ``<|im_end|>`` newline.

    The ids of a conversation are by construction those of its rollout: the prompt, the sampled tokens and the next
    observation. The text of a policy turn is encoded separately from the header before it, because sampling continues
    after the last token of the header and never merges with it.
    """

    start = "<|im_start|>"
    end = "<|im_end|>"

    def __init__(self, folder: Path, parser: ToolCallParser | None = None) -> None:
        self.tokenizer = ChatTokenizer(folder)
        self.parser = parser or self.default_parser()
        self._check_tokens()
        self._renderer = Renderer(self.tokenizer)
        self._end_id = self.tokenizer.added[self.end]
        self.stop_token_ids: tuple[int, ...] = tuple(dict.fromkeys((self._end_id, *self.tokenizer.end_token_ids)))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()) -> list[int]:
        """The first observation with the tools block, up to and including the assistant's header."""
        *blocks, last = self._blocks(messages, tools)
        blocks.append(Block((*last.pieces, self._header()), sampled=False))
        return self._renderer.encode_blocks(blocks)[0]

    def observation(self, messages: Sequence[Message], completion_ids: Sequence[int]) -> list[int]:
        """The text after a completion: the end of its turn if it is missing, the new messages, the next header."""
        ended = bool(completion_ids) and completion_ids[-1] == self._end_id
        opening = Piece("\n" if ended else f"{self.end}\n", "template")
        *blocks, last = self._turns([opening], messages)
        blocks.append(Block((*last.pieces, self._header()), sampled=False))
        return self._renderer.encode_blocks(blocks)[0]

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema] = ()
    ) -> tuple[list[int], list[bool]]:
        """A complete demonstration as ids [T] and loss mask [T], true only on assistant text and its end token."""
        return self._renderer.encode_blocks(self._blocks(messages, tools))

    @abstractmethod
    def default_parser(self) -> ToolCallParser:
        """The default parser of the format."""

    @abstractmethod
    def _opening(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema]
    ) -> tuple[list[Piece], Sequence[Message]]:
        """The system turn with the tools, and the remaining messages."""

    def _shown(self, messages: Sequence[Message]) -> list[Piece]:
        """Consecutive messages without assistant messages."""
        return [piece for message in messages for piece in self._turn(message.role, message)]

    def _turn(self, role: str, message: Message) -> list[Piece]:
        header, footer = Piece(f"{self.start}{role}\n", "template"), Piece(f"{self.end}\n", "template")
        return [header, Piece(text_of(message), "outside"), footer]

    def _written(self, message: Message) -> list[Piece]:
        """The text that the policy would have sampled for this message, without the end token."""
        parts = [text_of(message)] if message.content else []
        parts += [self.parser.render(call) for call in message.tool_calls]
        return [Piece("\n".join(parts), "assistant")]

    def _header(self) -> Piece:
        return Piece(f"{self.start}assistant\n", "template")

    def _blocks(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Iterator[Block]:
        opening, rest = self._opening(messages, tools)
        return self._turns(opening, rest)

    def _turns(self, opening: list[Piece], messages: Sequence[Message]) -> Iterator[Block]:
        """Blocks by turns: shown, sampled, shown, …; the last one is always shown and may be empty."""
        shown = opening
        for written, group in groupby(messages, key=lambda message: message.role == "assistant"):
            if not written:
                shown = shown + self._shown(list(group))
                continue
            for message in group:
                yield Block((*shown, self._header()), sampled=False)
                yield Block((*self._written(message), Piece(self.end, "template")), sampled=True)
                shown = [Piece("\n", "template")]
        yield Block(tuple(shown), sampled=False)

    def _check_tokens(self) -> None:
        missing = [token for token in (self.start, self.end) if token and token not in self.tokenizer.added]
        if missing:
            raise UserError(
                f"the chat format {type(self).__name__} needs the tokens {self.start} and {self.end}",
                found=f"no {' and no '.join(missing)} in the tokenizer",
                where=str(self.tokenizer.folder / "tokenizer.json"),
                fix="use another chat format, or a model with these tokens",
            )


def text_of(message: Message) -> str:
    """The message's text. Raises `UserError` for images."""
    if message.images:
        raise UserError("this chat format cannot show images", found=f"an image in a {message.role} message")
    return message.text
