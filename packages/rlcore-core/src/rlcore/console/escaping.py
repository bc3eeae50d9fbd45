"""Make any text safe to show: control characters become visible escapes, and secrets are masked."""

from __future__ import annotations

import re
import unicodedata

from rlcore.redaction import redact

_SPECIAL = re.compile(r"[^ -~]")
_JOINERS = {"\u200c", "\u200d"}
"""Invisible, but parts of words and emoji."""


def printable(text: str) -> str:
    r"""The text on one line, with escapes such as ``\n``, ``\x1b`` and ``\u202e`` for all that controls a terminal.

    Escaped are the control characters C0, C1 and DEL, separators of lines and paragraphs, characters that change the
    direction of text or are invisible, and lone surrogates. An escaped text is unchanged by a second call.
    """
    text = redact(text)
    if text.isascii() and text.isprintable():
        return text
    return _SPECIAL.sub(lambda found: _visible(found[0]), text)


def is_printable(character: str) -> bool:
    """Whether a character is shown as it is."""
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def _visible(character: str) -> str:
    return character if is_printable(character) else character.encode("unicode_escape").decode("ascii")


def escaped_json(text: str) -> str:
    r"""JSON or TOML text whose strings contain no character that controls a terminal: these become ``\uXXXX``."""
    return _SPECIAL.sub(lambda found: _unit_escapes(found[0]), text)


def _unit_escapes(character: str) -> str:
    if character == "\n" or is_printable(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[index : index + 2], 'big'):04x}" for index in range(0, len(units), 2))
