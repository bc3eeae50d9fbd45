"""Printed commands work as they are typed, and installation hints work before and after rlcore is published."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rlcore.console.invocation import as_typed
from rlcore.plugins import loading
from rlcore.plugins.loading import pip_line


@pytest.mark.parametrize(
    ("program", "depth", "expected"),
    [
        ("/x/bin/rlcore", None, "rlcore eval runs/a"),
        ("/x/bin/rlcore", "1", "uv run rlcore eval runs/a"),
        ("/x/rlcore/__main__.py", None, "python -m rlcore eval runs/a"),
        ("/x/rlcore/__main__.py", "1", "uv run python -m rlcore eval runs/a"),
    ],
)
def test_commands_begin_as_the_one_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, program: str, depth: str | None, expected: str
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "run"])
    if depth is not None:
        monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", depth)
    assert as_typed("next      rlcore eval runs/a") == f"next      {expected}"


def test_other_texts_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    for text in ("the rlcore package", "uv run --extra vllm rlcore run", "/opt/rlcore run", "rlcore runs"):
        assert as_typed(text) == text


def test_fix_of_an_error_names_the_typed_command() -> None:
    environment = {**os.environ, "UV_RUN_RECURSION_DEPTH": "1"}
    command = [sys.executable, "-c", "import sys; from rlcore.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*command, "config", "show", "-p", "core"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert "uv run rlcore" in done.stderr or "rlcore run" not in done.stderr


def test_hints_name_folders_of_a_clone_until_rlcore_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PUBLISHED", False)
    clone = "   # in a clone of rlcore"
    assert pip_line(["rlcore-rollout[vllm]"]) == f"pip install './packages/rlcore-rollout[vllm]'{clone}"
    assert pip_line(["rl-plugin-gsm8k-tools>=0.1"]) == f"pip install ./plugins/rl-plugin-gsm8k-tools{clone}"
    assert pip_line(["rlcore"]) == f"pip install ./packages/*{clone}"
    assert pip_line(["other>=2"]) == "pip install 'other>=2'"
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    assert pip_line(["other"]) == "uv pip install other"
    monkeypatch.setattr(loading, "PUBLISHED", True)
    assert pip_line(["rlcore-rollout[vllm]"]) == "uv pip install 'rlcore-rollout[vllm]'"


def test_help_lists_commands_of_plugins_from_a_cache(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "acme_rl-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: acme-rl\nVersion: 1.2\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[rlcore.plugins]\nacme = acme_rl\n", encoding="utf-8")
    plugin = site / "acme_rl.py"
    lines = ["from rlcore import CommandSpec, hookimpl", "@hookimpl", "def rlcore_commands():"]

    def shown(name: str, *more: str) -> str:
        text = [
            *lines,
            f"    yield CommandSpec(id={name!r}, target='acme:greet', summary='Say \\x1b[31mhello.')",
            *more,
        ]
        plugin.write_text("\n".join(text) + "\n", encoding="utf-8")
        return help_text()

    def help_text(**more: str) -> str:
        settings = {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}
        command = [sys.executable, "-m", "rlcore", "--help"]
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **settings}, check=True
        ).stdout

    first = shown("greet", f"open({str(tmp_path / 'imported')!r}, 'a').write('x')")
    assert "greet" in first.partition("Commands of plugins:")[2]
    assert "\x1b" not in first
    assert help_text() == first
    assert (tmp_path / "imported").read_text() == "x"  # the second time, no plugin is imported
    assert "salute" in shown("salute")
    assert "salute" not in help_text(RLCORE_DISABLE_PLUGINS="acme")
    (tmp_path / "cache/rlcore/commands.json").write_text("[1", encoding="utf-8")
    assert "salute" in help_text()
    assert "salute" in help_text(XDG_CACHE_HOME=str(plugin))  # it cannot be written
