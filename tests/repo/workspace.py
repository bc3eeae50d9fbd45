"""The members of the workspace and their dependencies, from its files and the lock."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
"""The supported versions of Python, which the workflows test."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One distribution of the workspace."""

    name: str
    version: str
    folder: Path
    project: dict[str, Any]
    """The ``[project]`` table of its ``pyproject.toml``."""

    @property
    def module_folder(self) -> Path | None:
        """The folder of its module, or None for a distribution without one."""
        folders = sorted(path.parent for path in self.folder.glob("src/*/__init__.py"))
        assert len(folders) <= 1, f"{self.name} has more than one module: {folders}"
        return folders[0] if folders else None

    @property
    def tests(self) -> Path | None:
        """The folder of its tests, or None."""
        folder = self.folder / "tests"
        return folder if any(folder.glob("test_*.py")) else None

    @property
    def dependencies(self) -> list[str]:
        """Its requirements, as written."""
        return list(self.project.get("dependencies", []))

    @property
    def extras(self) -> dict[str, list[str]]:
        """Its optional requirements by extra, as written."""
        return dict(self.project.get("optional-dependencies", {}))


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as a dictionary."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


@functools.cache
def members(root: Path = ROOT) -> tuple[Member, ...]:
    """All members that match the globs in the root's ``pyproject.toml``, sorted by name."""
    found = []
    for glob in read_toml(root / "pyproject.toml")["tool"]["uv"]["workspace"]["members"]:
        for path in root.glob(f"{glob}/pyproject.toml"):
            project = read_toml(path)["project"]
            found.append(Member(name=project["name"], version=project["version"], folder=path.parent, project=project))
    return tuple(sorted(found, key=lambda member: member.name))


def distribution(requirement: str) -> str:
    """The distribution of a requirement: ``rlcore-rollout`` for ``rlcore-rollout[torch]==0.1``."""
    return re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")


@functools.cache
def _locked() -> dict[str, dict[str, Any]]:
    packages = read_toml(ROOT / "uv.lock")["package"]
    return {package["name"]: package for package in packages}


def closure(name: str, extras: Iterable[str] = ()) -> frozenset[str]:
    """All dependencies of ``name`` (and its extras) in the lock, on any supported platform."""
    packages = _locked()
    seen: set[tuple[str, str | None]] = set()
    waiting: list[tuple[str, str | None]] = [(name, None), *((name, extra) for extra in extras)]
    while waiting:
        package, extra = here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        entry = packages[package]
        direct = entry.get("optional-dependencies", {}).get(extra, []) if extra else entry.get("dependencies", [])
        for dependency in direct:
            waiting.append((dependency["name"], None))
            waiting.extend((dependency["name"], wanted) for wanted in dependency.get("extra", []))
    return frozenset(package for package, _ in seen) - {name}
