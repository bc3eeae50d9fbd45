"""What a notebook shows of a result: a small table and curves, as HTML without scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rlcore.images import data_uri, side_by_side
from rlcore.report.answers import expected_answer, final_answer
from rlcore.report.templates import template

if TYPE_CHECKING:
    from rlcore.types import Group

MOST_ROWS = 8
"""Number of trajectories in a table with images."""
LONGEST_CELL = 300
"""Limit of a text in it, in characters."""
WIDTH, HEIGHT, EDGE = 360, 90, 6
"""Size of a curve and its margin, in pixels."""


def page(title: str, rows: Sequence[tuple[str, str]], parts: Iterable[str] = ()) -> str:
    """A table with a title, followed by curves or a gallery."""
    return _part("page")(title, rows, list(parts))


def gallery(groups: Iterable[Group]) -> str:
    """A table of the first trajectories with images: the images, the question, the answer and the reward.

    Nothing if there are none. Texts are cut.
    """
    shown = ((group.task, one) for group in groups for one in group.trajectories if one.images)
    rows = []
    for task, one in islice(shown, MOST_ROWS):
        picture = side_by_side(one.images.values(), side=96)
        data = data_uri(picture) if picture is not None else ""
        asked = next((message.text for message in reversed(task.messages) if message.role == "user"), "")
        expected = expected_answer(task.fields)
        reward = "not scored" if one.reward is None else f"{one.reward:.3g}"
        cells = (asked, final_answer(one), "" if expected is None else expected, reward)
        rows.append((data, [cell[:LONGEST_CELL] for cell in cells]))
    return _part("gallery")(rows) if rows else ""


def curve(title: str, values: Mapping[int, float]) -> str:
    """A line through the values by step, labelled with its first and last value; nothing for less than two."""
    if len(values) < 2:
        return ""
    low, high = min(0.0, *values.values()), max(values.values())
    high = 1.0 if low == 0.0 and 0.5 < high <= 1.0 else high
    (first, start), (last, end) = min(values.items()), max(values.items())
    across, up = (WIDTH - 2 * EDGE) / (last - first), (HEIGHT - 2 * EDGE) / ((high - low) or 1.0)
    points = " ".join(
        f"{EDGE + across * (step - first):.1f},{HEIGHT - EDGE - up * (value - low):.1f}"
        for step, value in sorted(values.items())
    )
    caption = f"{title}: {start:.3g} at step {first}, {end:.3g} at step {last}"
    return _part("curve")(caption, points, WIDTH, HEIGHT)


def _part(name: str) -> Callable[..., str]:
    """A macro of the template. It returns markup, which other macros show as it is."""
    return getattr(template("notebook.html").module, name)  # type: ignore[no-any-return]


__all__ = ["curve", "gallery", "page"]
