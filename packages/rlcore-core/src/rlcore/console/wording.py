"""Format counts for messages."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """``1 row``, ``2,000 rows``, ``3 strategies``, ``1.25 epochs``: a number with a regular noun."""
    text = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    if text == "1":
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{text} {noun[:-1]}ies"
    if noun.endswith("is"):
        return f"{text} {noun[:-2]}es"
    return f"{text} {noun}{'es' if noun.endswith(('s', 'x', 'tch', 'sh')) else 's'}"
