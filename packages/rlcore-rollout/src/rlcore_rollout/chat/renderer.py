"""Text to tokens, where each stretch of text says which added tokens it may write.

Nothing that a user, a data file or a tool wrote may become ``<|im_end|>`` or an image's token: it would end a turn and
begin another in the model's eyes. So only a format's own text turns into added tokens; the same characters from
outside are encoded as the ordinary text that they are. Between two added tokens all text is encoded in one run, whoever
wrote it, as the tokenizer does with a rendered template: harmless conversations get the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlcore_rollout.chat.tokenizer import ChatTokenizer

MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""What an assistant writes besides text, be it a special token of the tokenizer or not."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text, and who wrote it.

    ``template``: the chat format; every added token in it is meant. ``assistant``: the policy, or somebody in its
    place; only `MARKUP` and tokens that are not special are meant. ``outside``: everybody else; nothing is meant.
    """

    text: str
    writer: Literal["template", "assistant", "outside"]


@dataclass(frozen=True, slots=True)
class Block:
    """Segments that are encoded together; the policy's own are never encoded together with what stands before them."""

    segments: tuple[Segment, ...]
    sampled: bool


class Renderer:
    """Encodes segments with one tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        everything = tokenizer.added.keys()
        meant = {token for token in everything if token in MARKUP or token not in tokenizer.special}
        self._patterns = {"template": _any_of(everything), "assistant": _any_of(meant), "outside": None}

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        """The ids of the segments' joined text."""
        ids: list[int] = []
        run: list[str] = []
        for segment in segments:
            pattern = self._patterns[segment.writer]
            pieces = pattern.split(segment.text) if pattern else [segment.text]
            run.append(pieces[0])
            for token, text in zip(pieces[1::2], pieces[2::2], strict=True):
                ids += self._encode_run(run)
                ids.append(self._tokenizer.added[token])
                run = [text]
        return ids + self._encode_run(run)

    def encode_blocks(self, blocks: Iterable[Block]) -> tuple[list[int], list[bool]]:
        """Ids [T] and loss mask [T]: true on the tokens of sampled blocks."""
        ids: list[int] = []
        mask: list[bool] = []
        for block in blocks:
            ids += self.encode(block.segments)
            mask += [block.sampled] * (len(ids) - len(mask))
        return ids, mask

    def _encode_run(self, run: Sequence[str]) -> list[int]:
        text = "".join(run)
        return self._tokenizer.encode_text(text) if text else []


def _any_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
