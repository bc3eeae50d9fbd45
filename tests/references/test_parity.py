"""Compare our algorithms with stored outputs of TRL and verl, in float64.

``make_golden.py`` writes the golden tensors with the functions of the peers, so the peers are not installed here.
``parity_lines.py`` lists the comparisons, one line per call.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

REFERENCES = Path(__file__).parent
sys.path.insert(0, str(REFERENCES))

import parity_ours as ours  # noqa: E402
from parity_lines import DIVERGENCES, LINES, TOLERANCE, Line  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

INPUTS = load_file(ours.INPUTS)
OUTPUTS = {peer: ours.golden_outputs(peer) for peer in ("trl", "verl")}
EQUAL = [line for line in LINES if not line.divergence]
DIFFERENT = [line for line in LINES if line.divergence]


def of_group(lines: list[Line]) -> dict[str, list[Line]]:
    """Lines by group."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    return groups


@pytest.mark.parametrize(("group", "lines"), of_group(EQUAL).items(), ids=of_group(EQUAL))
def test_values_and_gradients_match_the_peers(group: str, lines: list[Line]) -> None:
    differences = {line.name: ours.difference(line, INPUTS, OUTPUTS[line.peer]).largest for line in lines}
    assert {name: found for name, found in differences.items() if found > TOLERANCE} == {}


@pytest.mark.parametrize("line", DIFFERENT, ids=lambda line: line.divergence)
def test_divergence_has_its_recorded_size(line: Line) -> None:
    found, golden = ours.difference(line, INPUTS, OUTPUTS[line.peer]), ours.golden_divergences()[line.name]
    assert found.value == pytest.approx(golden.value, abs=TOLERANCE)
    assert (found.gradient or 0.0) == pytest.approx(golden.gradient or 0.0, abs=TOLERANCE)
    assert found.largest > 100 * TOLERANCE  # the option has an effect on these tensors


def test_every_divergence_has_a_line() -> None:
    assert {line.divergence for line in DIFFERENT} == set(DIVERGENCES)


def test_golden_tensors_match_the_table() -> None:
    for peer, outputs in OUTPUTS.items():
        stored = {name.rpartition("/")[0] for name in outputs}
        assert stored == {line.name for line in LINES if line.peer == peer}


def test_cases_cover_holes_empty_rows_and_large_ratios() -> None:
    holes_BT = INPUTS["holes/mask"]
    assert any("01" in "".join(str(int(bit)) for bit in row) for row in holes_BT.tolist())
    assert not INPUTS["empty-row/mask"].any(dim=1).all()
    assert 1 in torch.bincount(INPUTS["holes/unequal-groups"])
    assert (INPUTS["large/logprobs"] - INPUTS["large/old-logprobs"]).max() > torch.tensor(10.0).log()
