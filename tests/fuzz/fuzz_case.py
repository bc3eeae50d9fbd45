"""A case of the fuzz run, and the oracle that judges what the command did with it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fuzz_forks import Forks, Outcome

OWN = {".out", ".err", ".home", ".tmp"}
"""Files of the harness in the folder of a case."""
STATUSES = {0, 1, 2}
LIMIT_S = 30.0
_HAS_FIX = re.compile(r"^ +fix ", re.MULTILINE)
_HAS_REASON = re.compile(r"^error: [\d,]+ problems? in ", re.MULTILINE)
_USAGE = re.compile(r"^(Usage:|Try 'rlcore)", re.MULTILINE)
_VOLATILE = re.compile(r'"seconds": [0-9.]+|\d+(\.\d+)? s\b|[\d.]+ [KMGT]iB(?= are free)|(?<=program )[\d.]+ [KMGT]iB')


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command on one input."""

    name: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    """Files to write before, by path in the folder of the case; None removes one that `folders` brings."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders to copy before, by name in the folder of the case."""
    expect: Literal["any", "refused", "same"] = "any"
    """``refused``: the input is wrong by construction, so the status is not 0. ``same``: the input means the same as
    the unchanged one, so status and output are equal to those of `like`."""
    like: tuple[str, ...] = ()
    """The arguments of the unchanged command, for ``same``; its files are those of `like_files`."""
    like_files: Mapping[str, bytes | None] = field(default_factory=dict)
    writes: frozenset[str] = frozenset()
    """What a command may create in the folder of the case."""
    keeps: frozenset[str] = frozenset()
    """What of that may remain with status 2: the directory of a run that had begun."""
    environment: Mapping[str, str] = field(default_factory=dict)
    bug_of: str | None = None
    """The plugin whose command may fail with status 70, which names it."""


class Judge:
    """Runs cases in a folder of their own each, and says what is wrong with the outcome."""

    def __init__(self, folder: Path, forks: Forks, number: int) -> None:
        self._folder, self._forks, self._number = folder, forks, number
        self._known: dict[tuple[object, ...], Outcome] = {}

    def problem(self, case: Case) -> str | None:
        """What is wrong; None for a good outcome."""
        folder = self._folder / case.name
        outcome, new = self._run(folder, case.arguments, case.files, case)
        found = _problem(case, outcome, new)
        if found is None and case.expect == "same":
            found = self._difference(case, outcome)
        if found is None:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        shown = " ".join(argument[:80] for argument in case.arguments).encode("utf-8", "backslashreplace").decode()
        tail = (outcome.err or outcome.out)[-1500:]
        return f"{case.name}: {found}\n  rlcore {shown}\n  in {folder}\n{tail}"

    def _run(
        self, folder: Path, arguments: tuple[str, ...], files: Mapping[str, bytes | None], case: Case
    ) -> tuple[Outcome, set[str]]:
        for name, source in case.folders.items():
            shutil.copytree(source, folder / name, symlinks=True)
        for name in (".home", ".tmp"):
            (folder / name).mkdir(parents=True)
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)
        before = set(os.listdir(folder))
        outcome = self._forks.run(self._number, list(arguments), folder, case.environment)
        new = set(os.listdir(folder)) - before - OWN
        leftovers = {f".tmp/{name}" for name in os.listdir(folder / ".tmp")}
        return outcome, new | {name for name in leftovers if not name.startswith(".tmp/torch")}

    def _difference(self, case: Case, outcome: Outcome) -> str | None:
        key = (case.like, *sorted(case.like_files.items()), *sorted(case.folders), *sorted(case.environment.items()))
        if key not in self._known:
            folder = self._folder / f"{case.name}-unchanged"
            self._known[key], _ = self._run(folder, case.like, case.like_files, case)
            shutil.rmtree(folder, ignore_errors=True)
        known = self._known[key]
        if (known.status, _VOLATILE.sub("", known.out)) == (outcome.status, _VOLATILE.sub("", outcome.out)):
            return None
        return f"differs from the unchanged input (status {known.status}, {known.out[-300:]!r})"


def _problem(case: Case, outcome: Outcome, new: set[str]) -> str | None:
    """The oracle, except for the comparison with an unchanged input."""
    checks: dict[str, Callable[[], bool]] = {
        f"status {outcome.status}": lambda: outcome.status not in STATUSES and not _names_bug(case, outcome),
        "a traceback": lambda: "Traceback (most recent call last)" in outcome.out + outcome.err,
        f"took {outcome.seconds:.0f} s": lambda: outcome.seconds > LIMIT_S,
        "a process is left": lambda: outcome.left > 0,
        "status 2 without a fix": lambda: outcome.status == 2 and not _explains(outcome.err),
        "wrong input was accepted": lambda: case.expect == "refused" and outcome.status == 0,
        f"left {sorted(new)}": lambda: bool(new - (case.writes if outcome.status != 2 else case.keeps)),
    }
    return next((text for text, failed in checks.items() if failed()), None)


def _names_bug(case: Case, outcome: Outcome) -> bool:
    return case.bug_of is not None and outcome.status == 70 and f"error: {case.bug_of}" in outcome.err


def _explains(err: str) -> bool:
    return any(pattern.search(err) for pattern in (_HAS_FIX, _HAS_REASON, _USAGE))


def unchanged(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of all files below a folder, to see that nothing was written there."""
    found = []
    for path in sorted(folder.rglob("*")):
        told = path.lstat()
        found.append((str(path.relative_to(folder)), told.st_size, told.st_mtime_ns))
    return found


__all__ = ["Case", "Judge", "unchanged"]
