"""Questions about pictures, as the plugin sees them, from whichever file they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question about one or several pictures."""

    id: str
    """Unique in its split."""
    question: str
    answer: str
    images: tuple[bytes, ...]
    """Encoded pictures, in the order of ``image_clue_0``, ``image_clue_1``, …."""
    aliases: tuple[str, ...] = ()
    """Further texts that are right."""
    options: tuple[str, ...] = ()
    """The texts of the options of a multiple choice; empty for a free answer. ``answer`` is then a letter or a text of
    them."""
    data_source: str = ""
    """The data set that the question comes from."""
    category: str = ""
    """The type of the question, by which results are grouped."""
