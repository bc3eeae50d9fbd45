"""All answers of GSM8K are parsed. Requires the data folder in RLCORE_DATA."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rl_plugin_string_equal.extract import expected_number, stated_number

DATA = os.environ.get("RLCORE_DATA")


@pytest.mark.skipif(not DATA, reason="RLCORE_DATA is not set to a folder with gsm8k/train.jsonl and gsm8k/test.jsonl")
@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_every_answer_equals_the_number_in_its_solution(name: str) -> None:
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
