"""Our mathematics against stored outputs of TRL and verl (``tests/references``), in float64.

The golden tensors are written by ``tests/references/make_golden.py`` from the peers' own functions, so nothing of
theirs is installed here. What is compared stands in ``parity_lines.py``, one line a call.
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
    """Lines by the group under which they are shown."""
    return {line.group: [other for other in lines if other.group == line.group] for line in lines}


@pytest.mark.parametrize(("group", "lines"), of_group(EQUAL).items(), ids=of_group(EQUAL))
def test_value_and_gradient_equal_the_peers(group: str, lines: list[Line]) -> None:
    differences = {line.name: ours.difference(line, INPUTS, OUTPUTS[line.peer]).largest for line in lines}
    assert {name: found for name, found in differences.items() if found > TOLERANCE} == {}


@pytest.mark.parametrize("line", DIFFERENT, ids=lambda line: line.divergence)
def test_a_named_divergence_is_as_large_as_it_was(line: Line) -> None:
    found, golden = ours.difference(line, INPUTS, OUTPUTS[line.peer]), ours.golden_divergences()[line.name]
    assert found.value == pytest.approx(golden.value, abs=TOLERANCE)
    assert (found.gradient or 0.0) == pytest.approx(golden.gradient or 0.0, abs=TOLERANCE)
    assert found.largest > 100 * TOLERANCE  # the switch matters on these tensors


def test_every_named_divergence_has_a_line() -> None:
    assert {line.divergence for line in DIFFERENT} == set(DIVERGENCES)


def test_the_golden_tensors_are_those_of_the_table() -> None:
    for peer, outputs in OUTPUTS.items():
        stored = {name.rpartition("/")[0] for name in outputs}
        assert stored == {line.name for line in LINES if line.peer == peer}


def test_the_cases_have_holes_an_empty_row_a_group_of_one_and_large_ratios() -> None:
    holes_BT = INPUTS["holes/mask"]
    assert any("01" in "".join(str(int(bit)) for bit in row) for row in holes_BT.tolist())
    assert not INPUTS["empty-row/mask"].any(dim=1).all()
    assert 1 in torch.bincount(INPUTS["holes/unequal-groups"])
    assert (INPUTS["large/logprobs"] - INPUTS["large/old-logprobs"]).max() > torch.tensor(10.0).log()
