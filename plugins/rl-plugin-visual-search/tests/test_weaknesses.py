"""The table of weaknesses names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[1]
ROOT = PLUGIN.parents[1]
PLACES = ("plugins/*/tests", "packages/*/tests", "tests/*", "examples/*/tests")


def test_every_row_names_existing_tests() -> None:
    if not (ROOT / "packages").is_dir():
        pytest.skip("the tests of other packages are not here")
    page = (PLUGIN / "weaknesses.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 50))
    assert [row for row in rows if "::test_" not in row[1] and "mpossible by construction" not in row[1]] == []
    file = ""
    for part in re.findall(r"`([^`]+)`", page):
        if not (part.endswith(".py") or part.startswith("test_") or ".py::" in part):
            continue
        where, _, name = part.partition("::") if ".py" in part else (file, "", part)
        file = where.rpartition("/")[2]
        texts = [path.read_text(encoding="utf-8") for place in PLACES for path in ROOT.glob(f"{place}/{file}")]
        assert texts, f"{part}: no such file"
        assert not name or any(f"def {name}(" in text for text in texts), part
