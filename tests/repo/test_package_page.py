"""The package in ``write-an-environment.md`` contains all files that its hooks refer to."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from workspace import ROOT

PAGE = ROOT / "docs" / "how-to" / "write-an-environment.md"


def block(beginning: str) -> str:
    """The only code block of the page with this first line."""
    (found,) = [
        text for text in re.findall(r"```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.S) if text.startswith(beginning)
    ]
    return str(found)


def test_wheel_of_documented_package_includes_its_recipe(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": block("[build-system]"),
        "src/rl_plugin_doors/__init__.py": "",
        "src/rl_plugin_doors/plugin.py": block("from rlcore import DatasetSpec"),
        "src/rl_plugin_doors/environment.py": block("import random"),
        "src/rl_plugin_doors/recipes/default.toml": block("[model]"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.removeprefix("src/") for name in files if name.startswith("src/")} <= names
