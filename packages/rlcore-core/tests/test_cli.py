"""The command line interface in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rlcore.doctor import examine

ACME = """
import click
from rlcore import CommandSpec, hookimpl

@hookimpl
def rlcore_commands():
    yield CommandSpec(id="greet", target="acme_command:greet")
    yield CommandSpec(id="absent", target="no_such_library:command", needs=("acme-rl[command]",))
    yield CommandSpec(id="run", target="acme_command:greet")
"""

ACME_COMMAND = """
import click
from rlcore import DataError

@click.command()
@click.argument("name")
def greet(name):
    if name == "invalid":
        raise DataError("the name is invalid", found="'invalid'", where="the command line", fix="give another name")
    if name == "interrupt":
        raise KeyboardInterrupt
    if name == "bug":
        raise ZeroDivisionError("a bug")
    click.echo(f"hello {name}")
"""


@pytest.fixture
def acme(tmp_path: Path) -> Path:
    """A folder with a distribution whose plugin registers commands."""
    information = tmp_path / "acme_rl-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.4\nName: acme-rl\nVersion: 1.2\n", encoding="utf-8")
    (information / "entry_points.txt").write_text("[rlcore.plugins]\nacme = acme_rl\n", encoding="utf-8")
    (tmp_path / "acme_rl.py").write_text(ACME, encoding="utf-8")
    (tmp_path / "acme_command.py").write_text(ACME_COMMAND, encoding="utf-8")
    return tmp_path


def rlcore(*arguments: str, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "PYTHONPATH": str(path or ""), "PYTHONIOENCODING": "utf-8", **environment}
    command = [sys.executable, "-m", "rlcore", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=settings, check=False, encoding="utf-8")


def test_help_lists_commands_and_examples() -> None:
    done = rlcore("--help")
    assert done.returncode == 0
    assert "rlcore run --plugin gsm8k-tools" in done.stdout
    listed = done.stdout.partition("Commands:")[2]
    assert all(f"\n  {name} " in listed for name in ("run", "eval", "data", "config", "plugins", "doctor"))
    assert rlcore("-h").stdout == done.stdout


@pytest.mark.parametrize(
    "command",
    ["run", "eval", "data", "config", "plugins", "doctor", "plugins list", "plugins show"],
)
def test_every_command_has_help_with_examples(command: str) -> None:
    done = rlcore(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert f"rlcore {command.split()[0]}" in done.stdout.partition("Examples")[2]


def test_version() -> None:
    done = rlcore("--version")
    assert done.stdout.startswith("rlcore 0.")


def test_unknown_command_exits_with_2_and_a_suggestion() -> None:
    done = rlcore("plugin")
    assert done.returncode == 2
    assert "there is no command 'plugin'; did you mean 'plugins'?" in done.stderr
    assert "did you mean 'rlcore data rescore'?" in rlcore("rescore").stderr
    assert rlcore("plugins", "lst").returncode == 2
    assert rlcore("--no-such-option").returncode == 2


def test_plugin_command_runs_and_is_suggested(acme: Path) -> None:
    assert rlcore("greet", "you", path=acme).stdout == "hello you\n"
    assert "did you mean 'greet'?" in rlcore("gret", path=acme).stderr
    assert "hello" not in rlcore("run", "--help", path=acme).stdout


def test_command_with_a_missing_package_names_it(acme: Path) -> None:
    done = rlcore("absent", path=acme)
    assert done.returncode == 2
    assert "command 'absent' needs the module 'no_such_library'" in done.stderr
    assert "pip install 'acme-rl[command]'" in done.stderr


def test_bad_input_exits_with_2_without_a_traceback(acme: Path) -> None:
    done = rlcore("greet", "invalid", path=acme)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: the name is invalid",
        "  found  'invalid'",
        "  from   the command line",
        "  fix    give another name",
    ]


def test_interrupt_exits_with_130_and_bugs_with_70(acme: Path) -> None:
    interrupted = rlcore("greet", "interrupt", path=acme)
    assert interrupted.returncode == 130
    assert "Traceback" not in interrupted.stderr
    bug = rlcore("greet", "bug", path=acme)
    assert bug.returncode == 70
    (line,) = bug.stderr.splitlines()
    assert line.startswith("error: acme_command failed: ZeroDivisionError: a bug")


def test_plugins_list_imports_plugins_only_with_check(acme: Path) -> None:
    (acme / "acme_rl.py").write_text("raise ValueError('no licence')\n", encoding="utf-8")
    listed = rlcore("plugins", "list", path=acme)
    assert listed.returncode == 0
    assert "· acme" in listed.stdout
    checked = rlcore("plugins", "list", "--check", path=acme)
    assert checked.returncode == 1
    assert "✗ acme" in checked.stdout
    assert "ValueError: no licence (acme_rl.py:1)" in checked.stdout
    rows = json.loads(rlcore("plugins", "list", "--check", "--json", path=acme).stdout)
    states = {row["name"]: row["state"] for row in rows}
    assert (states["acme"], states["core"]) == ("broken", "ok")


def test_plugins_show_prints_components(acme: Path) -> None:
    shown = rlcore("plugins", "show", "acme", path=acme)
    assert shown.returncode == 0
    assert "greet" in shown.stdout
    row = json.loads(rlcore("plugins", "show", "acme-rl", "--json", path=acme).stdout)
    assert [offer["id"] for offer in row["offers"]["command"]] == ["absent", "greet", "run"]
    missing = rlcore("plugins", "show", "acne", path=acme)
    assert missing.returncode == 2
    assert "did you mean 'acme'?" in missing.stderr


@pytest.mark.slow
def test_doctor_reports_a_broken_plugin_with_a_fix(acme: Path) -> None:
    (acme / "acme_rl.py").write_text("raise ValueError('no licence')\n", encoding="utf-8")
    done = rlcore("doctor", "--json", path=acme, OMP_NUM_THREADS="4096", PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 1
    rows = json.loads(done.stdout)
    assert {row["check"] for row in rows} >= {"python", "libraries", "cpu", "gpu", "disk", "plugins"}
    failed = [row for row in rows if row["status"] == "fail"]
    assert any("acme" in row["text"] and row["fix"] for row in failed)
    (threads,) = [row for row in rows if row["check"] == "cpu"]
    assert threads["status"] == "warn"
    assert threads["fix"].startswith("export OMP_NUM_THREADS=")
    assert any(row["fix"] == "unset PYTHONDONTWRITEBYTECODE" for row in rows if row["check"] == "python")


@pytest.mark.slow
def test_doctor_reports_missing_parts_of_a_default_recipe(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = "from rlcore import RecipeSpec, hookimpl\n\n@hookimpl\ndef rlcore_recipes():\n"
    recipe += "    yield RecipeSpec(id='acme/default', target='acme_package:default.toml')\n"
    (acme / "acme_recipe.py").write_text(recipe, encoding="utf-8")
    (acme / "acme_rl-1.2.dist-info" / "entry_points.txt").write_text("[rlcore.plugins]\nacme = acme_recipe\n")
    (acme / "acme_package").mkdir()
    methods = "train = device = optimise = collect = update_weights = generate = load_weights = close"
    part = f"class Part:\n    {methods} = print\n"
    (acme / "acme_package" / "__init__.py").write_text(part, encoding="utf-8")
    tables = [f"[{name}]\nid = 'acme_package:Part'\n" for name in ("trainer", "strategy", "sampler")]
    toml = "requires = ['rl-plugin-of-the-moon>=3', 'rlcore-core']\n[environment]\nid = 'moon'\n" + "".join(tables)
    toml += "[rollout]\nengine = 'acme_package:Part'\n[[reward]]\nid = 'math:nothing'\n"
    (acme / "acme_package" / "default.toml").write_text(toml, encoding="utf-8")
    monkeypatch.syspath_prepend(acme)
    missing, *others = [finding for name, finding in examine("acme") if name == "acme/default"]
    assert (missing.status, missing.fix) == ("fail", "pip install 'rl-plugin-of-the-moon>=3'")
    failed = [finding.text for finding in others if finding.status == "fail"]
    assert [text.partition(":")[0] for text in failed] == [
        "there is no environment 'moon'",
        "there is no dataset 'moon'",
        "reward 'math",
    ]
    assert rlcore("doctor", "-p", "of-the-moon", path=acme).returncode == 2
