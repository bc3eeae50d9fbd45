"""The table of faults has a row for each fault, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[1]
ROOT = PLUGIN.parents[1]
PLACES = ("plugins/*/tests", "packages/*/tests", "tests/*", "examples/*/tests")
KNOWN = {f"F{number}" for number in range(1, 61)} | {f"U{number}" for number in range(1, 19)}


def test_every_row_names_existing_tests() -> None:
    if not (ROOT / "packages").is_dir():
        pytest.skip("the tests of other packages are not here")
    page = (PLUGIN / "faults.md").read_text(encoding="utf-8")
    faults = re.findall(r"^\| ([FU]\d+) \| ", page, re.MULTILINE)
    assert set(faults) == KNOWN
    assert len(faults) == len(set(faults)), "a fault has two rows"
    rows = [line for line in page.splitlines() if re.match(r"\| [FU]\d+ ", line)]
    assert not [row for row in rows if "::test_" not in row], "a row names no test"
    file = ""
    for part in re.findall(r"`([^`]+)`", page):
        if not (part.endswith(".py") or part.startswith("test_") or ".py::" in part):
            continue
        where, _, name = part.partition("::") if ".py" in part else (file, "", part)
        file = where.rpartition("/")[2]
        texts = [path.read_text(encoding="utf-8") for place in PLACES for path in ROOT.glob(f"{place}/{file}")]
        assert texts, f"{part}: no such file"
        assert not name or any(f"def {name}(" in text for text in texts), part
