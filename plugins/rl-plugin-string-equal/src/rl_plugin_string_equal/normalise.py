"""Normalise texts for comparison."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


def normalise(text: str, ignore: Collection[str]) -> str:
    """Remove the differences named in ``ignore`` from a text. They are applied in the following order.

    ``unicode``: normalisation form NFKC, so that full-width characters and ligatures equal the plain ones.
    ``case``: Unicode case folding.
    ``punctuation``: characters of the Unicode categories P* are removed; symbols such as ``$`` and ``+`` (S*) are kept.
    ``articles``: the words *a*, *an* and *the* are replaced with a space.
    ``whitespace``: runs of white space become one space; leading and trailing white space is removed.
    """
    if "unicode" in ignore:
        text = unicodedata.normalize("NFKC", text)
    if "case" in ignore:
        text = text.casefold()
    if "punctuation" in ignore:
        text = "".join(character for character in text if not unicodedata.category(character).startswith("P"))
    if "articles" in ignore:
        text = _ARTICLES.sub(" ", text)
    if "whitespace" in ignore:
        text = " ".join(text.split())
    return text
