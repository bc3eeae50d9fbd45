"""Print the members and tests that a change affects, as JSON: ``affected.py BASE`` or ``affected.py --all``.

::

    {"members": ["rlcore-trainer", "rlcore"], "tests": ["packages/rlcore-trainer/tests", "tests"]}

``members`` are the changed members of the workspace and their direct and indirect dependants, extras included.
``tests`` are the arguments for pytest: the tests of these members and, if there are any, the tests that span packages.
Changed files are those of ``git diff BASE...HEAD``. A shared or unknown file affects everything. A change to documents
only affects the tests of documents.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from workspace import ROOT, Member, distribution, members

SPANNING = ("tests/end_to_end", "tests/benchmarks", "tests/references", "examples")
"""Folders whose changes affect the tests that span packages, and no member."""
DOCUMENT_TESTS = ("tests/repo/test_docs.py", "tests/repo/test_site.py", "tests/repo/test_words.py")
TESTS_OF_ALL = "tests"


@dataclass(frozen=True, slots=True)
class Affected:
    """The members and tests to run."""

    members: list[str]
    tests: list[str]


def dependants(workspace: Iterable[Member]) -> dict[str, set[str]]:
    """For each member, the members that require it, directly or in an extra."""
    found: dict[str, set[str]] = {member.name: set() for member in workspace}
    for member in workspace:
        for requirement in chain(member.dependencies, *member.extras.values()):
            if (name := distribution(requirement)) in found and name != member.name:
                found[name].add(member.name)
    return found


def with_dependants(changed: Iterable[str], above: dict[str, set[str]]) -> set[str]:
    """The members and their dependants, transitively."""
    found: set[str] = set()
    waiting = list(changed)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += above[name]
    return found


def everything(root: Path = ROOT) -> Affected:
    """All members and all tests."""
    workspace = members(root)
    return Affected([member.name for member in workspace], [*_tests(workspace, root), TESTS_OF_ALL])


def affected(files: Iterable[str], root: Path = ROOT) -> Affected:
    """The members and tests that a change to these files affects. Paths are relative to the root."""
    workspace = members(root)
    folders = {member.folder.relative_to(root).as_posix(): member.name for member in workspace}
    changed: set[str] = set()
    spanning = documents = False
    for file in files:
        above = [parent.as_posix() for parent in PurePosixPath(file).parents]
        if owners := [folders[folder] for folder in above if folder in folders]:
            changed.update(owners)
        elif any(folder in SPANNING for folder in above):
            spanning = True
        elif "docs" in above or (above == ["."] and file.endswith(".md")):
            documents = True
        else:
            return everything(root)
    names = with_dependants(changed, dependants(workspace))
    chosen = [member for member in workspace if member.name in names]
    tests = _tests(chosen, root)
    if names or spanning:
        tests.append(TESTS_OF_ALL)
    elif documents:
        tests += DOCUMENT_TESTS
    return Affected([member.name for member in chosen], tests)


def _tests(workspace: Iterable[Member], root: Path) -> list[str]:
    return [member.tests.relative_to(root).as_posix() for member in workspace if member.tests]


def changed_files(base: str, root: Path = ROOT) -> list[str]:
    """The files that differ between HEAD and its merge base with ``base``. A renamed file has both names."""
    command = ["git", "-c", "core.quotePath=false", "diff", "--name-only", "--no-renames", f"{base}...HEAD"]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    """Parse the arguments and print the result."""
    parser = argparse.ArgumentParser(description="Print the members and tests that a change affects, as JSON.")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("base", nargs="?", metavar="BASE", help="a commit, such as origin/main")
    chosen.add_argument("--all", action="store_true", help="everything")
    arguments = parser.parse_args()
    found = everything() if arguments.all else affected(changed_files(arguments.base))
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
