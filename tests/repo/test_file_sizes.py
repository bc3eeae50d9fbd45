"""A module does one thing: 150 lines are typical, 400 a lot."""

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


def test_no_source_file_is_too_long() -> None:
    assert {name: lines for name, lines in source_lines().items() if lines > LIMIT} == {}


def test_the_typical_source_file_is_short() -> None:
    assert median(source_lines().values()) <= 200
