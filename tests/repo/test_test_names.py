"""Names of test functions are shorter than 80 characters."""

from __future__ import annotations

import re

from workspace import ROOT

LIMIT = 80
FOLDERS = ("packages", "plugins", "tests", "examples")
DEFINITION = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


def test_test_names_are_short() -> None:
    paths = (
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("test_*.py"))
        if ".venv" not in path.parts  # environments of the peers
    )
    names = ((path, name) for path in paths for name in DEFINITION.findall(path.read_text(encoding="utf-8")))
    assert [f"{path.relative_to(ROOT)}::{name}" for path, name in names if len(name) >= LIMIT] == []
