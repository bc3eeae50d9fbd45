"""Quote texts that are not trusted, so that the judge cannot take them for instructions or turns."""

from __future__ import annotations

import hashlib
import re

_OPENING = re.compile(r"<(?=[|/!\uff5c_A-Za-z])")
"""The beginning of a token such as ``<|im_end|>``, ``</s>`` or ``<image>``, which a server may read as special."""
_BRACKETED = re.compile(r"\[(?=/?[A-Z_]{2,}\])")
"""The beginning of a token such as ``[INST]``."""
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"  # control characters and lone surrogates
    "\u200b\u2060\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"  # text that is hidden or reordered
)


def quoted(text: str) -> str:
    """The text without control characters, invisible text and tokens of chat templates.

    A space after ``<`` separates the parts of a token. People and models read the text as before.
    """
    kept = _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
    return _BRACKETED.sub("[ ", _OPENING.sub("< ", kept)).strip()


def block_code(*texts: str) -> str:
    """A code for the delimiters of these texts. It depends on them, so that none of them can contain it by intent."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "replace")).hexdigest()[:8]
