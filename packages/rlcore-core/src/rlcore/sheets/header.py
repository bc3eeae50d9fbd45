"""The header of a sheet: what the trajectories are of, and the result of each environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlcore.console.wording import counted
from rlcore.episodes.evaluation import Summary, summaries_of
from rlcore.sheets.conversation import text
from rlcore.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the header says about the trajectories."""

    title: str
    """Such as ``Evaluation at step 10``."""
    rows: Sequence[tuple[str, str]] = ()
    """Names and values, such as the model and the recipe."""
    success: float = 1.0
    """A trajectory is right if its reward is at least this number."""


def header(facts: Facts, groups: Sequence[Group], summary: Summary) -> str:
    """The HTML of the header. ``summary`` is that of all groups.

    Each of several environments has its own accuracy and rewards: their tasks differ, so one number for all of them
    would depend on how many tasks each of them has.
    """
    parts = summaries_of(groups, success=facts.success)
    several = len(parts) > 1
    rows = [(name, value) for name, value in facts.rows if value]
    for name, part in parts.items() if several else [("", summary)]:
        rows += [(f"{name}: {key}" if name else key, value) for key, value in _numbers(part)]
    listed = "".join(f"<div><dt>{text(name, 120)}</dt><dd>{text(value, 1000)}</dd></div>" for name, value in rows)
    scores = "".join(_score(part, name) for name, part in parts.items()) if several else _score(summary)
    return f"<header><h1>{text(facts.title, 200)}</h1>{scores}<dl>{listed}</dl></header>\n"


def _numbers(summary: Summary) -> list[tuple[str, str]]:
    rows = [("mean reward", f"{summary.reward:.3f}")] if summary.reward is not None else []
    rows += [(id, f"{value:.3f}") for id, value in [*summary.rewards.items(), *summary.components.items()]]
    rows.append(("stopped by", ", ".join(f"{name} {count:,}" for name, count in summary.stops.items())))
    if summary.failures:
        rows.append(("failures", ", ".join(f"{name} {count:,}" for name, count in summary.failures.items())))
    return rows


def _score(summary: Summary, name: str = "") -> str:
    """The accuracy, of the environment with this name if there are several."""
    of = f"{text(name, 80)}: " if name else ""
    if summary.accuracy is None or summary.interval is None:
        none = f"none of {counted(summary.trajectories, 'trajectory')} scored"
        return f'<div class="score"><b>–</b><p>{of}{none}</p></div>'
    low, high = summary.interval
    bar = (
        '<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect class="track" width="100" '
        f'height="6"/><rect class="range" x="{100 * low:.2f}" width="{100 * (high - low):.2f}" height="6"/>'
        f'<rect class="mean" x="{max(0.0, 100 * summary.accuracy - 0.5):.2f}" width="1" height="6"/></svg>'
    )
    solved = f"{summary.solved:,} of {counted(summary.scored, 'trajectory')} right, {counted(summary.tasks, 'task')}"
    interval = f"95 % interval {low:.3f} to {high:.3f}"
    return f'<div class="score"><b>{summary.accuracy:.3f}</b><p>{of}accuracy, {interval}<br>{solved}</p>{bar}</div>'


__all__ = ["Facts", "header"]
