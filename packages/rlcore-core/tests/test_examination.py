"""Complaints of ``rlcore plugins list --check`` about plugins that load."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rlcore.cli import main
from rlcore.plugins.discovery import Complaint
from rlcore.plugins.examination import examine
from rlcore.plugins.loading import HEAVY
from rlcore.plugins.registry import Registry

Install = Callable[..., None]

HEAD = "from rlcore import DatasetSpec, RecipeSpec, RewardSpec, TrackerSpec, hookimpl\n"
REWARD = HEAD + "@hookimpl\ndef rlcore_rewards():\n    yield RewardSpec(id='{id}', target='{target}')\n"


def complaints(distribution: str = "acme-rl") -> tuple[Complaint, ...]:
    found = examine(Registry())
    return next((complaints for (name, _), complaints in found.items() if name == distribution), ())


def problems(distribution: str = "acme-rl") -> list[str]:
    return [complaint.problem for complaint in complaints(distribution)]


@pytest.fixture
def parts(tmp_path: Path) -> str:
    """A module of targets whose import fails, so that importing it is detected."""
    source = "import this_is_too_heavy\nfrom math import sqrt as root\nRight = 1\nLeft: int = 2\nNot: int\n"
    source += "class Judge: ...\ndef judge(): ...\nasync def wait(): ...\n"
    (tmp_path / "acme_parts.py").write_text(source, encoding="utf-8")
    return "acme_parts"


@pytest.mark.parametrize("name", ["Judge", "judge", "wait", "Right", "Left", "root", "Judge.deeper"])
def test_target_defined_in_source_is_not_imported(name: str, parts: str, install: Install) -> None:
    install("acme-rl", REWARD.format(id="exact", target=f"{parts}:{name}"))
    assert problems() == []
    assert parts not in sys.modules


def test_missing_attribute_message(install: Install, tmp_path: Path) -> None:
    (tmp_path / "acme_rewards.py").write_text("class Exact: ...\n", encoding="utf-8")
    install("acme-rl", REWARD.format(id="exact", target="acme_rewards:Exakt"))
    (complaint,) = complaints()
    assert complaint.problem == (
        "target of the reward 'exact': 'acme_rewards:Exakt' does not exist: acme_rewards has no 'Exakt'; "
        "did you mean 'Exact'?"
    )
    assert complaint.fix == "edit the spec in acme_rl_plugin, or pip install --upgrade acme-rl"


def test_name_created_at_import_is_accepted(install: Install, tmp_path: Path) -> None:
    (tmp_path / "acme_made.py").write_text("globals()['Exact'] = int\n", encoding="utf-8")
    install("acme-rl", REWARD.format(id="exact", target="acme_made:Exact"))
    assert problems() == []


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("acme_nowhere:Exact", "'acme_nowhere'"),
        ("acme_rl_plugin", "'module:name'"),
        ("acme_wrong:Exact", "SyntaxError: "),
    ],
)
def test_invalid_target_is_reported(target: str, cause: str, install: Install, tmp_path: Path) -> None:
    (tmp_path / "acme_wrong.py").write_text("class Exact(:\n", encoding="utf-8")
    install("acme-rl", REWARD.format(id="exact", target=target))
    (problem,) = problems()
    assert problem.startswith(f"target of the reward 'exact': {target!r} ")
    assert cause in problem


def test_all_import_paths_of_a_spec_are_checked(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_datasets():\n    yield DatasetSpec(id='rows', target='math:sqrt', config='math:a', "
    source += "prepare='math:b', prepare_config='math:c', label='math:d', "
    source += "label_config='math:f')\n"
    install("acme-rl", HEAD + source)
    assert [problem.partition(":")[0] for problem in problems()] == [
        "target of the dataset 'rows'",
        "config of the dataset 'rows'",
        "prepare of the dataset 'rows'",
        "prepare_config of the dataset 'rows'",
        "label of the dataset 'rows'",
        "label_config of the dataset 'rows'",
    ][1:]


def test_missing_recipe_file_is_reported(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_recipes():\n    yield RecipeSpec(id='acme/default', target='{}')\n"
    install("acme-rl", HEAD + source.format("rlcore:recipes/default.toml"))
    install("other-rl", HEAD + source.format("acme_nowhere:default.toml"))
    (first,) = [problem for problem in problems() if problem.startswith("target")]
    assert "'rlcore:recipes/default.toml'" in first
    (second,) = [problem for problem in problems("other-rl") if problem.startswith("target")]
    assert "'acme_nowhere:default.toml'" in second


def test_duplicate_id_is_reported_for_both_plugins(install: Install) -> None:
    for name in ("acme-rl", "other-rl"):
        install(name, REWARD.format(id="exact", target="math:sqrt"))
    (complaint,) = complaints()
    assert complaint.problem == "the reward 'exact' is also registered by other-rl 1.2, so neither can be used"
    assert complaint.fix == "change the id, or disable one: RLCORE_DISABLE_PLUGINS=acme-rl"
    (problem,) = problems("other-rl")
    assert "acme-rl 1.2" in problem


def test_builtin_id_is_reported_only_for_the_plugin(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_trackers():\n    yield TrackerSpec(id='console', target='math:sqrt')\n"
    install("acme-rl", HEAD + source)
    (complaint,) = complaints()
    assert "'console'" in complaint.problem
    assert "rlcore-core" in complaint.problem
    assert "acme_rl_plugin" in complaint.fix
    assert problems("rlcore-core") == []


def test_plugin_without_hooks_is_reported(install: Install) -> None:
    install("acme-rl", "x = 1\n")
    (complaint,) = complaints()
    assert "acme_rl_plugin" in complaint.problem
    assert "@rlcore.hookimpl" in complaint.fix


def test_complaint_is_printed_and_sets_the_exit_status(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["rlcore", "plugins", "list", "--check", *options])
        return main(), capsys.readouterr().out

    install("acme-rl", "print('Welcome!')\n" + REWARD.format(id="exact", target="math:sqrt"), plugin="acme")
    status, printed = check()
    assert status == 1
    lines = [line.strip() for line in printed.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("! acme "))
    assert lines[place].endswith("1 reward")
    problem, fix = lines[place + 1 : place + 3]
    assert "'Welcome!'" in problem
    assert fix.startswith("fix: ")
    sys.modules.pop("acme_rl_plugin")
    status, printed = check("--json")
    assert status == 1
    (row,) = [row for row in json.loads(printed) if row["name"] == "acme"]
    assert row["state"] == "ok"
    assert row["complaints"] == [{"problem": problem, "fix": fix.removeprefix("fix: ")}]


def test_checking_installed_plugins_imports_no_heavy_libraries() -> None:
    code = "import sys; from rlcore.plugins.examination import examine; from rlcore.plugins.registry import Registry; "
    code += f"examine(Registry()); print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


LOUD = """
import click
from rlcore import CommandSpec, DatasetSpec, RewardSpec, hookimpl
@hookimpl
def rlcore_rewards():
    print("from a hook")
    yield RewardSpec(id="loud", target="acme_rl_plugin:Reward")
@hookimpl
def rlcore_datasets():
    yield DatasetSpec(id="loud", target="acme_rl_plugin:Reward", prepare="acme_rl_plugin:prepare")
def prepare():
    print("from a component")
    return {"rows": 3}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("plugins", "list", "--check", "--json"),
        ("plugins", "show", "acme-rl", "--json"),
        ("data", "prepare", "loud", "--json"),
    ],
)
def test_output_of_plugins_does_not_reach_the_json(
    arguments: tuple[str, ...], install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install("acme-rl", LOUD)
    monkeypatch.setattr(sys, "argv", ["rlcore", *arguments])
    with contextlib.suppress(SystemExit):
        main()
    captured = capsys.readouterr()
    assert json.loads(captured.out)
    assert "from a " in captured.err
