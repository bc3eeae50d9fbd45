"""Converts text to tokens. Each piece of text has its own set of allowed added tokens.

Text of users, data files and tools must not become ``<|im_end|>`` or an image token, because it could then end a turn
and start another. Only the format's own text becomes added tokens; the same characters from other sources are encoded
as ordinary text. Text between two added tokens is encoded together, independent of its origin, as the tokenizer does
with a rendered template. Harmless conversations therefore get the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rlcore_rollout.chat.tokenizer import ChatTokenizer

MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""The markup that an assistant may write. In some tokenizers these are special tokens."""

LONGEST_CACHED = 32
"""Characters of a text whose ids are cached: above all the template's own, such as ``assistant`` and a newline."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text and its origin.

    ``template``: the chat format; all added tokens are allowed. ``assistant``: the policy or a demonstration; only
    `MARKUP` and added tokens that are not special are allowed. ``outside``: everything else; no added token is allowed.
    """

    text: str
    writer: Literal["template", "assistant", "outside"]


@dataclass(frozen=True, slots=True)
class Block:
    """Pieces that are encoded together. Those of the policy are never encoded together with what precedes them."""

    pieces: tuple[Piece, ...]
    sampled: bool


class Renderer:
    """Encodes pieces with one tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        everything = tokenizer.added.keys()
        meant = {token for token in everything if token in MARKUP or token not in tokenizer.special}
        self._encoded = lru_cache(maxsize=1024)(tokenizer.encode_text)
        self._patterns = {"template": _any_of(everything), "assistant": _any_of(meant), "outside": None}

    def encode(self, pieces: Sequence[Piece]) -> list[int]:
        """The ids of the pieces' joined text."""
        ids: list[int] = []
        run: list[str] = []
        swallowing = False  # the white space after a token belongs to it, up to the next visible character
        for piece in pieces:
            pattern = self._patterns[piece.writer]
            texts = pattern.split(piece.text) if pattern else [piece.text]
            if swallowing:
                texts[0] = texts[0].lstrip()
                swallowing = not texts[0] and len(texts) == 1
            run.append(texts[0])
            for token, text in zip(texts[1::2], texts[2::2], strict=True):
                ids += self._encode_run(run)
                ids.append(self._tokenizer.added[token])
                swallowing = token in self._tokenizer.swallowing
                run = [text.lstrip() if swallowing else text]
                swallowing = swallowing and not run[0]
        return ids + self._encode_run(run)

    def encode_blocks(self, blocks: Iterable[Block]) -> tuple[list[int], list[bool]]:
        """Ids [T] and loss mask [T]: true on the tokens of sampled blocks."""
        ids: list[int] = []
        mask: list[bool] = []
        for block in blocks:
            ids += self.encode(block.pieces)
            mask += [block.sampled] * (len(ids) - len(mask))
        return ids, mask

    def _encode_run(self, run: Sequence[str]) -> list[int]:
        text = "".join(run)
        if len(text) > LONGEST_CACHED:
            return self._tokenizer.encode_text(text)
        return self._encoded(text) if text else []


def _any_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None
