"""A change affects the changed members and their dependants."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from affected import DOCUMENT_TESTS, Affected, affected, changed_files, everything
from workspace import ROOT, members

TESTS = ["packages/base/tests", "packages/engine/tests"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """``engine`` requires ``base``, ``front`` requires ``engine`` in an extra, ``alone`` requires nothing."""
    requirements = {
        "base": '["torch>=2"]',
        "engine": "[\"base[fast]==0.1; python_version > '3'\"]",
        "front": '["click"]\noptional-dependencies = { all = ["front[some]"], some = ["engine>=0.1"] }',
        "alone": "[]",
    }
    (tmp_path / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["packages/*"]\n', encoding="utf-8")
    for name, lines in requirements.items():
        folder = tmp_path / "packages" / name
        (folder / "tests").mkdir(parents=True)
        project = f'[project]\nname = "{name}"\nversion = "0.1"\ndependencies = {lines}\n'
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    for tests in TESTS:
        (tmp_path / tests / "test_one.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("files", "names", "tests"),
    [
        (["packages/base/src/base/a.py"], ["base", "engine", "front"], [*TESTS, "tests"]),
        (["packages/engine/README.md", "docs/a.md"], ["engine", "front"], [TESTS[1], "tests"]),
        (["packages/alone/src/b.py"], ["alone"], ["tests"]),
        (["packages/front/pyproject.toml", "packages/alone/c"], ["alone", "front"], ["tests"]),
        (["tests/end_to_end/test_a.py"], [], ["tests"]),
        (["examples/one/README.md"], [], ["tests"]),
        (["docs/how-to/a.md", "docs/images/a.svg", "README.md"], [], [*DOCUMENT_TESTS]),
        ([], [], []),
    ],
)
def test_dependants_are_affected_transitively(
    workspace: Path, files: list[str], names: list[str], tests: list[str]
) -> None:
    assert affected(files, workspace) == Affected(names, tests)


@pytest.mark.parametrize(
    "file",
    [
        *("pyproject.toml", "uv.lock", ".ci/run", ".github/workflows/ci.yml", "tests/repo/workspace.py"),
        *("tests/conftest.py", "packages/removed/src/a.py", "an_unknown_file"),
    ],
)
def test_shared_files_affect_everything(workspace: Path, file: str) -> None:
    found = affected(["docs/a.md", file], workspace)
    assert found == everything(workspace)
    assert found == Affected(["alone", "base", "engine", "front"], [*TESTS, "tests"])


def test_dependants_in_the_real_workspace() -> None:
    every = [member.name for member in members()]
    assert affected(["packages/rlcore-core/src/rlcore/session/plan.py"]).members == every
    trainer = affected(["packages/rlcore-trainer/src/rlcore_trainer/plugin.py"]).members
    assert trainer == [
        *("rl-plugin-lerobot", "rl-plugin-robotwin", "rl-plugin-world-model"),
        *("rlcore", "rlcore-control", "rlcore-trainer"),
    ]
    plugin = affected(["plugins/rl-plugin-string-equal/README.md"]).members
    assert {"rl-plugin-gsm8k-tools", "rl-plugin-string-equal"} <= set(plugin)
    assert "rlcore-trainer" not in plugin
    assert all((ROOT / path).exists() for path in [*everything().tests, *DOCUMENT_TESTS])


def test_changed_files_are_relative_to_the_merge_base(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(*names: str) -> None:
        for name in names:
            (tmp_path / name).write_text(name, encoding="utf-8")
        git("add", "--all")
        git("commit", "--message", "a")

    git("init", "--initial-branch", "main")
    commit("first", "old")
    git("switch", "--create", "branch")
    git("mv", "old", "näw")
    commit("second")
    git("switch", "main")
    commit("third")
    git("switch", "branch")
    assert sorted(changed_files("main", tmp_path)) == sorted(["näw", "old", "second"])


def test_command_prints_json() -> None:
    script = [sys.executable, str(Path(__file__).with_name("affected.py"))]
    printed = subprocess.run([*script, "--all"], capture_output=True, text=True, check=True).stdout
    found = json.loads(printed)
    assert found == {"members": everything().members, "tests": everything().tests}
