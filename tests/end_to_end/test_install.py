"""The commands of the guide on installation, in fresh environments with pip and with uv."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.*rl-plugin-aitw)$", PAGE, re.MULTILINE)


def must(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist() -> Iterator[Path]:
    folder = ROOT / "dist"
    must("uv", "build", "--all-packages", "--wheel", "--quiet", "--out-dir", folder, cwd=ROOT)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("command", COMMANDS)
def test_plugin_is_installed_in_a_fresh_environment(
    command: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "dist" in command:
        request.getfixturevalue("dist")
    must("uv", "venv", "--seed", "--python", sys.executable, "environment", cwd=tmp_path)
    python = tmp_path / "environment" / "bin" / "python"
    words = command.split()
    program = ["uv", "pip", "install", "--python", python] if words[0] == "uv" else [python, "-m", "pip", "install"]
    must(*program, *words[words.index("install") + 1 :], cwd=ROOT)
    listed = must(tmp_path / "environment" / "bin" / "rlcore", "plugins", "list", "--check", cwd=tmp_path)
    assert "aitw" in listed


def test_the_guide_names_each_way_with_pip_and_with_uv() -> None:
    assert [("uv " in command, "dist" in command) for command in COMMANDS] == [
        (True, False), (False, False), (False, True), (True, True),
    ]  # fmt: skip
