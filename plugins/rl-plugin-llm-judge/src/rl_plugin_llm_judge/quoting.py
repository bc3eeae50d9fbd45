"""Quote texts that are not trusted, so that the judge cannot take them for instructions or turns."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_OPENING = re.compile(r"<(?=[|/!\uff5c_A-Za-z])")
"""The beginning of a token such as ``<|im_end|>``, ``</s>`` or ``<image>``, which a server may read as special."""
_BRACKETED = re.compile(r"\[(?=/?[A-Z_]{2,}\])")
"""The beginning of a token such as ``[INST]``."""
_INVISIBLE = frozenset(
    {0x200B, 0x2060, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080)}
)
"""Characters that hide or reorder text."""


def quoted(text: str) -> str:
    """The text without control characters, invisible text and tokens of chat templates.

    A space after ``<`` separates the parts of a token. People and models read the text as before.
    """
    kept = "".join(character if _is_visible(character) else "\N{REPLACEMENT CHARACTER}" for character in text)
    return _BRACKETED.sub("[ ", _OPENING.sub("< ", kept)).strip()


def _is_visible(character: str) -> bool:
    if character in "\n\t":
        return True
    return unicodedata.category(character) not in {"Cc", "Cs"} and ord(character) not in _INVISIBLE


def block_code(*texts: str) -> str:
    """A code for the delimiters of these texts. It depends on them, so that none of them can contain it by intent."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:8]
