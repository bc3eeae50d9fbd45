"""Draw the accuracy of finished runs by step as an SVG: ``draw_curve.py OUT.svg TITLE AXIS LABEL=RUN|FOLDER...``.

``--metric NAME`` draws another metric between 0 and 1.

Each run is a line. Runs with the same label (seeds of an experiment) share a colour. The label of a control begins with
``control:``, and its lines are dashed. Every curve needs one. A folder stands for all runs below it, such as those of
``pytest -m proof --basetemp FOLDER``. Their labels are their recipes, and those with shuffled rewards are controls.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 344, 76, 48, 16, 44
LINE = 18
CONTROL = "control:"
COLOURS = ("#2563eb", "#dc2626", "#ca8a04", "#16a34a")


def points(run: Path, metric: str) -> list[tuple[int, float]]:
    """Step and metric of each evaluation of a run."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(row["step"], row[metric]) for row in rows if metric in row]


def named(text: str) -> list[tuple[str, Path]]:
    """Label and folder of the runs that an argument names."""
    if "=" in text:
        label, run = text.rsplit("=", 1)
        return [(label, Path(run))]
    return [(_label(file.parent), file.parent) for file in sorted(Path(text).glob("**/metrics.jsonl"))]


def _label(run: Path) -> str:
    asked, config = (tomllib.loads((run / name).read_text("utf-8")) for name in ("asked.toml", "config.toml"))
    recipe = asked["recipe"]
    return f"{CONTROL} {recipe}, shuffled rewards" if config["algorithm"]["shuffle_rewards"] else recipe


def draw(title: str, axis: str, series: list[tuple[str, list[tuple[int, float]]]]) -> str:
    """The SVG of all series, with one legend entry per label.

    Args:
        title: of the picture
        axis: the name of the vertical axis
        series: label, and step and value of each point
    """
    assert any(label.startswith(CONTROL) for label, _ in series), "a curve needs its control"
    last = max(step for _, line in series for step, _ in line)

    def place(step: float, accuracy: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
        return f"{x:.1f},{TOP + (HEIGHT - TOP - BOTTOM) * (1 - accuracy):.1f}"

    labels = list(dict.fromkeys(label for label, _ in series))
    whole = HEIGHT + LINE * len(labels) + 8  # the legend is below the chart
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {whole}" font-size="13">',
        f'<rect width="{WIDTH}" height="{whole}" fill="#ffffff"/><g font-family="sans-serif">',
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="600" fill="#111827">{escape(title)}</text>',
        f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle" '
        f'fill="#374151">{escape(axis)}</text>',
    ]
    for tenths in range(0, 11, 2):
        x, y = place(0, tenths / 10).split(",")
        rows.append(f'<line x1="{x}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
        rows.append(f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end" fill="#374151">{tenths * 10} %</text>')
    for step in sorted({step for _, line in series for step, _ in line}):
        x, y = place(step, 0).split(",")
        rows.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle" fill="#374151">{step}</text>')
    for label, line in series:
        colour = COLOURS[labels.index(label) % len(COLOURS)]
        path = " ".join(place(*point) for point in line)
        rows.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{_dashes(label)}/>')
    for i, label in enumerate(labels):
        y = HEIGHT + 4 + LINE * i
        colour = COLOURS[i % len(COLOURS)]
        rows.append(
            f'<line x1="{LEFT}" x2="{LEFT + 24}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2.5"{_dashes(label)}/>'
        )
        rows.append(f'<text x="{LEFT + 30}" y="{y + 4}" fill="#111827">{escape(label)}</text>')
    middle = (WIDTH + LEFT - RIGHT) / 2
    rows.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle" fill="#374151">training steps</text>')
    return "\n".join([*rows, "</g></svg>"]) + "\n"


def _dashes(label: str) -> str:
    return ' stroke-dasharray="6 4"' if label.startswith(CONTROL) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--metric", default="evaluation/accuracy")
    parser.add_argument("words", nargs="+")
    asked = parser.parse_intermixed_args()
    out, title, axis, *texts = asked.words
    series = [(label, points(run, asked.metric)) for text in texts for label, run in named(text)]
    Path(out).write_text(draw(title, axis, series), encoding="utf-8")
