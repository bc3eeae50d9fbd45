"""Format a comparison as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.console.wording import counted

from rlcore_merge.comparison import Comparison

SHOWN = 20


def size(count: int) -> str:
    """A number of bytes in a readable unit."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def lines(comparison: Comparison) -> Iterator[str]:
    """The tensors that differ, largest difference first, then a summary."""
    rows = comparison.rows[:SHOWN]
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        apart = "" if row.difference is None else f"  largest difference {row.difference:g}"
        yield f"{row.name:<{width}}  {row.problem}{apart}"
    if len(comparison.rows) > SHOWN:
        yield f"and {len(comparison.rows) - SHOWN} more"
    yield from (f"note: {note}" for note in comparison.notes)
    if comparison.logits is not None:
        yield f"logits on a prompt: largest difference {comparison.logits:g}"
    else:
        yield f"logits: not compared ({comparison.logits_note})"
    word = "equal" if comparison.equal else f"{len(comparison.rows)} differ" if comparison.rows else "the logits differ"
    yield f"{counted(comparison.tensors, 'tensor')} compared: {word}"
