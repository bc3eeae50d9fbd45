"""Which differences between two texts do not count."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


def normalise(text: str, ignore: Collection[str]) -> str:
    """The text without the differences named in ``ignore``, applied in this order whatever the order given.

    ``unicode``: compatibility form NFKC, so that full-width and ligature forms equal the plain ones.
    ``case``: Unicode case folding.
    ``punctuation``: characters of the Unicode categories P* are removed; signs such as ``$`` and ``+`` (S*) stay.
    ``articles``: the words *a*, *an* and *the* become a space.
    ``whitespace``: runs of white space become one space, none at the ends.
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
