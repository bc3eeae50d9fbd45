"""Recipes in the folder ``recipes`` of a plugin's package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rlcore.plugins.registry import Registry, resource

RECIPE = 'summary = "Opens doors."\n[model]\npath = "builtin:tiny-qwen2"\n'
HOOK = """
from rlcore import RecipeSpec, hookimpl

@hookimpl
def rlcore_recipes():
    yield RecipeSpec(id="doors/large", target="doors_package:recipes/large.toml", summary="Registered.")
"""


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed plugin without hooks."""
    package, info = tmp_path / "doors_package", tmp_path / "doors_rl-1.dist-info"
    for folder in (package / "recipes", info):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "plugin.py").touch()
    for name in ("large.toml", "default.toml", "notes.md"):
        (package / "recipes" / name).write_text(RECIPE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doors-rl\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rlcore.plugins]\ndoors = doors_package.plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield package
    for name in [name for name in sys.modules if name.startswith("doors_package")]:
        del sys.modules[name]


def recipes() -> dict[str, str]:
    return {spec.id: spec.summary for spec in Registry().specs("recipe") if spec.id.startswith("doors/")}


def test_files_are_recipes_with_their_own_summary(doors: Path) -> None:
    assert recipes() == {"doors/default": "Opens doors.", "doors/large": "Opens doors."}
    spec = Registry().spec("recipe", "doors/default")
    assert resource(spec.target).read_text() == RECIPE


def test_a_registered_recipe_takes_precedence(doors: Path) -> None:
    (doors / "plugin.py").write_text(HOOK)
    assert recipes() == {"doors/default": "Opens doors.", "doors/large": "Registered."}


def test_damaged_files_and_no_folder_give_no_error(doors: Path) -> None:
    (doors / "recipes" / "large.toml").write_bytes(b"\xff\xfe")
    (doors / "recipes" / "folder.toml").mkdir()
    assert recipes() == {"doors/default": "Opens doors.", "doors/large": ""}
    (doors / "recipes" / "folder.toml").rmdir()
    for file in (doors / "recipes").iterdir():
        file.unlink()
    (doors / "recipes").rmdir()
    assert recipes() == {}
