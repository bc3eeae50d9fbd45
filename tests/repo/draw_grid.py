"""Draw measured curves as an SVG of small charts.

Curves are ``{name: {seed: {step: share}}}``. Each name is a chart, and each seed is a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape

COLUMNS, WIDTH, HEIGHT, LEFT, TOP, GAP = 4, 150, 80, 62, 30, 46
COLOURS = ("#2563eb", "#ca8a04", "#16a34a", "#dc2626")
Curves = Mapping[str, Mapping[str, Mapping[str, float]]]


def draw(curves: Curves, title: str) -> str:
    """The SVG: shares from 0 to 100 % by training step, with the same scale in every chart."""
    rows = -(-len(curves) // COLUMNS)
    width, height = LEFT + COLUMNS * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP) + 24
    last = max(int(step) for seeds in curves.values() for line in seeds.values() for step in line)
    seeds = list(next(iter(curves.values())))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/><g font-family="sans-serif" fill="#374151">',
        f'<text x="{LEFT}" y="14">{escape(title)}:</text>',
    ]
    for place, seed in enumerate(seeds):
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<text x="{LEFT + 390 + 70 * place}" y="14" fill="{colour}">seed {escape(seed)}</text>')
    for place, (name, lines) in enumerate(curves.items()):
        x, y = LEFT + place % COLUMNS * (WIDTH + GAP), TOP + place // COLUMNS * (HEIGHT + GAP) + 18
        parts += _chart(name, lines, x, y, last)
    return "\n".join([*parts, "</g></svg>"]) + "\n"


def _chart(name: str, lines: Mapping[str, Mapping[str, float]], x: float, y: float, last: int) -> list[str]:
    parts = [f'<text x="{x}" y="{y - 6}" fill="#111827" font-weight="bold">{escape(name)}</text>']
    for share in (0.0, 0.5, 1.0):
        level = y + HEIGHT * (1 - share)
        parts.append(f'<line x1="{x}" x2="{x + WIDTH}" y1="{level:g}" y2="{level:g}" stroke="#e5e7eb"/>')
        parts.append(f'<text x="{x - 6}" y="{level + 4:g}" text-anchor="end" font-size="10">{share:.0%}</text>')
    for step in (0, last):
        at = x + WIDTH * step / last
        parts.append(f'<text x="{at:g}" y="{y + HEIGHT + 13}" text-anchor="middle" font-size="10">{step}</text>')
    for place, line in enumerate(lines.values()):
        points = " ".join(f"{x + WIDTH * int(s) / last:.1f},{y + HEIGHT * (1 - a):.1f}" for s, a in line.items())
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts
