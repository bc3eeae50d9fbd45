"""FSDP2 sees every weight that an update uses: its hooks run only around the forward pass of its module."""

from __future__ import annotations

from pathlib import Path

import pytest
from sharded_update import CASES
from two_processes import two_processes

LIMIT, HALF_LIMIT = 1e-6, 2**-7
"""In bfloat16, a number is rounded by up to 2^-9, and each process rounds other micro-batches."""


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.long)])
def test_update_with_sharded_weights_equals_that_of_one_process(model_folder: Path, tmp_path: Path, count: int) -> None:
    code = "import sharded_update; sharded_update.main()"
    with two_processes(code, str(model_folder), str(tmp_path / "copied"), count=count) as started:
        said, errors = started[0].communicate(timeout=300)
        assert started[1].communicate(timeout=60)[0] == "", "only the main process prints"
    found = {line.split()[0]: line for line in said.splitlines()}
    assert found.keys() == CASES.keys(), said + errors[-3000:]
    limits = {name: HALF_LIMIT if "dtype" in case else LIMIT for name, case in CASES.items()}
    assert all(float(line.split()[1]) < limits[name] for name, line in found.items()), said
