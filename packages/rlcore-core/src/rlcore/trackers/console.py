"""Print one aligned line per step, and a summary with a curve at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from rlcore.console.terminal import in_notebook
from rlcore.runs.directory import read_metrics
from rlcore.runs.output import Output

BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = 24, low: float | None = None, high: float | None = None) -> str:
    """The last ``width`` values, one character each, scaled to ``low`` … ``high`` (by default, their range)."""
    shown = list(values)[-width:]
    if not shown:
        return ""
    low = min(shown) if low is None else low
    high = max(shown) if high is None else high
    span = high - low
    return "".join(BLOCKS[1 + round((_clamp((value - low) / span) if span else 0.0) * 7)] for value in shown)


def area_chart(
    steps: Sequence[int], values: Sequence[float], *, title: str, width: int = 56, height: int = 8
) -> list[str]:
    """The rows of a chart of ``values`` over ``steps`` with labelled axes. Values are not interpolated.

    If there are more values than columns, they are averaged; if there are fewer, each spans several columns.
    """
    columns = _columns(values, width)
    low, high = min(0.0, *columns), max(*columns, 0.0)
    if low >= 0.0 and (0.5 < high <= 1.0 or high == 0.0):
        high = 1.0
    span = (high - low) or 1.0
    eighths = [round(_clamp((value - low) / span) * height * 8) for value in columns]
    rows = [f"  {title}"]
    for row in reversed(range(height)):
        label = f"{high:6.2f}" if row == height - 1 else f"{low:6.2f}" if row == 0 else " " * 6
        rows.append(f"{label} │" + "".join(BLOCKS[max(0, min(8, count - 8 * row))] for count in eighths).rstrip())
    rows.append(" " * 7 + "└" + "─" * len(columns))
    first, last = str(steps[0]), f"step {steps[-1]}"
    rows.append(" " * 8 + first + last.rjust(max(len(last) + 1, len(columns) - len(first))))
    return rows


def _columns(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    if count > width:
        edges = [round(index * count / width) for index in range(width + 1)]
        return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    repeat = max(1, width // count)
    return [value for value in values for _ in range(repeat)]


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


COLUMNS = (
    ("reward", "reward/mean", "6.3f"),
    ("accuracy", "accuracy", "5.3f"),
    ("kl", "kl/mean", "8.1e"),
    ("loss", "loss/total", "+8.4f"),
    ("loss", "loss", "8.4f"),
    ("accuracy", "preference/accuracy", "5.3f"),
    ("tokens", "tokens/sampled", "7,.0f"),
)
"""Label, metric and format. A column without a value is omitted."""
EVALUATED = {"loss": "7.4f", "perplexity": "9.3f", "accuracy": ".3f", "reward": ".3f"}
"""Metrics of an evaluation and their formats. The first that is not 0 at all steps is drawn as a curve."""
CURVES = {"reward/mean": "mean reward in training", "loss": "loss in training"}
"""Training metrics that are drawn as a curve; a run has one of them."""

DRAWN = 3
"""Values from which on a chart says more than the lines above it."""


class ConsoleTracker:
    """Writes plain text without cursor movement: the same lines in a terminal, in a pipe and in ``output.log``.

    In a notebook, the lines of steps replace each other.
    """

    def __init__(self, options: None, directory: Path | None) -> None:
        self._output = Output()
        self._values: list[tuple[int, float]] = []
        self._title = CURVES["reward/mean"]
        self._evaluated: dict[str, list[tuple[int, float]]] = {}
        if directory is not None:
            self._output.log = directory / "output.log"
            for line in read_metrics(directory / "metrics.jsonl"):  # continue the curve of a resumed run
                self._remember(line["step"], {name: value for name, value in line.items() if value is not None})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Print one line for training, one for an evaluation, or one for other metrics."""
        self._remember(step, metrics)
        if is_step := any(name in metrics for name in CURVES):
            self._output.update(self._step_line(step, metrics))
        if any(name.startswith("evaluation/") for name in metrics):
            self._output.update(self._evaluation_line(step, metrics))
        elif not is_step:
            shown = [
                f"{name} {value:.4g}" for name, value in metrics.items() if not name.startswith(("time/", "memory/"))
            ]
            self._output.update(f"step {step:>5}  " + "  ".join(shown[:6]))

    def _remember(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, title in CURVES.items():
            if math.isfinite(metrics.get(name, math.nan)):
                self._title = title
                self._values.append((step, metrics[name]))
                break
        for name in EVALUATED:
            if math.isfinite(value := metrics.get(f"evaluation/{name}", math.nan)):
                self._evaluated.setdefault(name, []).append((step, value))

    def _evaluations(self) -> tuple[str, list[tuple[int, float]]]:
        """The metric of evaluations that is drawn, with its values; rewards below 1 may never be an accuracy."""
        for name, values in self._evaluated.items():
            if any(value for _, value in values):
                return name, values
        return next(iter(self._evaluated.items()), ("accuracy", []))

    def _step_line(self, step: int, metrics: Mapping[str, float]) -> str:
        parts = [f"step {step:>5}"]
        parts += [f"{label} {metrics[name]:{form}}" for label, name, form in COLUMNS if name in metrics]
        seconds = metrics.get("time/step_s")
        if seconds is None:
            seconds = metrics.get("time/rollout_s", 0.0) + metrics.get("time/update_s", 0.0)
        parts.append(f"{seconds:6.1f} s")
        if missing := int(metrics.get("not_scored", 0)):
            parts.append(f"not scored {missing}")
        parts.append(sparkline([value for _, value in self._values]))
        return "  ".join(parts)

    def _evaluation_line(self, step: int, metrics: Mapping[str, float]) -> str:
        parts = [f"step {step:>5}", "evaluation"]
        for name, form in EVALUATED.items():
            if (value := metrics.get(f"evaluation/{name}")) is not None:
                parts.append(f"{name} {value:{form}}")
        for name, value in metrics.items():  # of several environments
            if name.startswith("evaluation/") and name.endswith("/accuracy") and name.count("/") == 2:
                parts.append(f"{name.split('/')[1]} {value:.3f}")
        if (seconds := metrics.get("time/evaluation_s")) is not None:
            parts.append(f"{seconds:.1f} s")
        what, values = self._evaluations()
        if len(values) > 1:
            high = 1.0 if what == "accuracy" else None
            low = None if what == "reward" else 0.0
            parts.append(sparkline([value for _, value in values], low=low, high=high))
        return "  ".join(parts)

    def close(self) -> None:
        """Print the curve, and the first, best and last evaluation. In a notebook, they are only written to the log."""
        rows: list[str] = []
        what, evaluations = self._evaluations()
        if len(self._values) >= DRAWN:
            rows += ["", *area_chart(*zip(*self._values, strict=True), title=self._title)]
        if len(evaluations) >= DRAWN:
            title = f"{what} on held-out {'conversations' if what == 'loss' else 'tasks'}"
            rows += ["", *area_chart(*zip(*evaluations, strict=True), title=title)]
        if evaluations:
            first, last = evaluations[0], evaluations[-1]
            sign = -1 if what == "loss" else 1
            best = max(evaluations, key=lambda entry: (sign * entry[1], sign * entry[0]))
            rows += ["", f"  held-out {what}"]
            rows += [
                f"    {name:<5}  {value:6.3f}   step {step}"
                for name, (step, value) in (("first", first), ("best", best), ("last", last))
            ]
        if in_notebook():
            self._output.note(*rows, "")
        elif rows:
            self._output.say(*rows, "")
