"""Modules, classes and functions that the documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from workspace import ROOT, members

NAME = re.compile(r"`((?:rlcore|rl_plugin_\w+)(?:\.\w+|_\w+\.\w+)[\w.]*)(?:\(\))?`")
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("p*/*/README.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
OTHERS = ("rl_plugin_lab", "rl_plugin_doors", "rlcore_policy.json")
"""Plugins that a reader writes, and a file."""


def missing(name: str) -> str | None:
    """The part of a dotted name that does not exist; None if all of it does."""
    folders = [member.module_folder for member in members() if member.module_folder]
    first, *rest = name.split(".")
    place = next((folder for folder in folders if folder.name == first), None)
    while place is not None and place.is_dir() and rest:
        below = place / rest[0]
        if not below.is_dir() and not below.with_suffix(".py").is_file():
            place = place / "__init__.py"
            break
        place = below if below.is_dir() else below.with_suffix(".py")
        rest = rest[1:]
    if place is None:
        return first
    source = "" if not rest else (place / "__init__.py" if place.is_dir() else place).read_text(encoding="utf-8")
    return next((part for part in rest if not re.search(rf"\b{part}\b", source)), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_parts_exist(page: Path) -> None:
    names = set(NAME.findall(page.read_text(encoding="utf-8")))
    found = {name: part for name in names if not name.startswith(OTHERS) and (part := missing(name))}
    assert found == {}


@pytest.mark.parametrize("name", ["rlcore.nothing", "rlcore.contracts.Nothing", "rlcore_nothing.module"])
def test_a_missing_part_is_found(name: str) -> None:
    assert missing(name)
