"""Each picture of a training curve says what it shows, and shows its control."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


def test_the_runs_of_a_folder_are_drawn_by_recipe_and_control(tmp_path: Path) -> None:
    for number, shuffled in enumerate(("false", "false", "true")):
        run = tmp_path / f"test{number}" / "runs" / "run"
        run.mkdir(parents=True)
        (run / "asked.toml").write_text('recipe = "nim/default"\n')
        (run / "config.toml").write_text(f"[algorithm]\nshuffle_rewards = {shuffled}\n")
        rows = ({"step": step, "evaluation/accuracy": 0.1 * step} for step in (0, 5))
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "nim.svg"
    command = [sys.executable, str(Path(__file__).with_name("draw_curve.py")), str(out), "Nim", "accuracy on games"]
    subprocess.run([*command, str(tmp_path)], check=True)
    svg = out.read_text()
    assert svg.count("<polyline") == 3
    assert re.findall(r">(nim[^<]*|control:[^<]*)<", svg) == ["nim/default", "control: nim/default, shuffled rewards"]
