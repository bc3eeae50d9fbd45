"""The slices of the long tests, and the table of their durations."""

from __future__ import annotations

from slices import OTHERS, PACKAGES, SECONDS, slices
from workspace import ROOT


def test_every_file_is_in_one_slice_and_slices_are_balanced() -> None:
    names = [*SECONDS, *(f"test_{index}.py" for index in range(30))]
    found = slices(names, 12)
    assert sorted(name for part in found for name in part) == sorted(names)
    loads = [sum(SECONDS.get(name, OTHERS) for name in part) for part in found]
    loads[0] += PACKAGES
    assert max(loads) - min(loads) <= max(SECONDS.values(), default=OTHERS)


def test_listed_files_exist() -> None:
    there = {path.name for folder in ("packages", "plugins", "tests") for path in (ROOT / folder).rglob("test_*.py")}
    assert set(SECONDS) <= there
