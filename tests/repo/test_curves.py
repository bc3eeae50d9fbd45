"""Each picture of a training curve says what it shows, and shows its control."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"


@pytest.mark.parametrize("name", sorted(path.name for path in IMAGES.glob("*.svg")))
def test_curve_has_a_title_named_axes_and_its_control(name: str) -> None:
    svg = (IMAGES / name).read_text(encoding="utf-8")
    texts = re.findall(r"<text[^>]*>([^<]*)", svg)
    if name == "algorithms.svg":  # a chart for each algorithm
        assert texts[0].startswith("accuracy of training samples by training step")
        assert "rewards shuffled" in texts
        return
    assert 'font-weight="600"' in svg
    assert "training steps" in texts
    assert re.search(r"rotate\(-90\)[^>]*>(accuracy|success rate) [^<]+<", svg)
    labels = [text for text in texts if text.startswith("control: ")]
    assert labels
    assert svg.count("stroke-dasharray") >= 2 * len(labels)  # the lines and the legend
