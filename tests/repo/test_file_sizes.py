"""Modules are short: 150 lines are typical, 400 are the limit."""

from __future__ import annotations

from statistics import median

from workspace import members

LIMIT = 400


def source_lines() -> dict[str, int]:
    return {
        str(path.relative_to(member.folder)): len(path.read_text(encoding="utf-8").splitlines())
        for member in members()
        if member.module_folder
        for path in member.module_folder.rglob("*.py")
    }


def test_source_files_stay_below_the_limit() -> None:
    assert {name: lines for name, lines in source_lines().items() if lines > LIMIT} == {}


def test_median_source_file_is_short() -> None:
    assert median(source_lines().values()) <= 200
