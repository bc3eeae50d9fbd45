"""Every answer of GSM8K is read; needs the folder of real data that RLCORE_DATA names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rl_plugin_string_equal.extract import expected_number, stated_number

DATA = os.environ.get("RLCORE_DATA")


@pytest.mark.skipif(not DATA, reason="RLCORE_DATA names no folder with gsm8k/train.jsonl and gsm8k/test.jsonl")
@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_every_answer_is_read_and_its_own_solution_states_it(name: str) -> None:
    lines = (Path(DATA or "") / "gsm8k" / name).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) > 500
    for row in rows:
        solution, _, final = row["answer"].rpartition("#### ")
        value = expected_number(row["answer"])
        assert value is not None, final
        assert value == expected_number(final) == stated_number(row["answer"])
        assert stated_number(f"{solution}\nSo the answer is {final} in all 3 cases.") == value
        assert stated_number(rf"{solution} \boxed{{{final}}} (2 steps)") == value
