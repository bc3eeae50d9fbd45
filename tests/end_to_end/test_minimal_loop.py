"""The loop of ``examples/minimal_loop`` reaches the accuracy of the default recipe."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import rlcore

FILE = Path(__file__).parents[2] / "examples" / "minimal_loop" / "grpo.py"
STEPS = 10
MOST_LINES = 200


@pytest.fixture
def loop() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minimal_loop", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_minimal_loop_has_few_lines_and_no_trainer() -> None:
    source = FILE.read_text(encoding="utf-8")
    assert source.count("\n") < MOST_LINES
    assert "Trainer" not in source
    assert "class " not in source


@pytest.mark.long
@pytest.mark.timeout(900)
def test_minimal_loop_reaches_the_accuracy_of_the_default_recipe(
    loop: ModuleType, shortened_run: Path, warmed_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both start from the same policy, which solves nothing."""
    accuracy = loop.main(warmed_up, steps=STEPS)
    lines = capsys.readouterr().out.splitlines()
    assert accuracy > 0.75
    recipe = rlcore.load_run(shortened_run).metrics
    assert accuracy > max(recipe["evaluation/accuracy"].values()) - 0.1
    rewards = [float(line.split()[3]) for line in lines if "reward" in line]
    expected = recipe["reward/mean"]
    assert rewards[0] == pytest.approx(expected[1], abs=0.01), "the same policy answers the same problems"
    assert rewards[-1] == pytest.approx(expected[STEPS], abs=0.15)
