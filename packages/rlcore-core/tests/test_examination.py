"""What ``rlcore plugins list --check`` says against plugins that load."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rlcore.cli import main
from rlcore.discovery import Complaint
from rlcore.examination import examine
from rlcore.plugin_import import HEAVY
from rlcore.registry import Registry

Install = Callable[..., None]

HEAD = "from rlcore import DatasetSpec, RecipeSpec, RewardSpec, TrackerSpec, hookimpl\n"
REWARD = HEAD + "@hookimpl\ndef rlcore_rewards():\n    yield RewardSpec(id='{id}', target='{target}')\n"


def complaints(distribution: str = "acme-rl") -> tuple[Complaint, ...]:
    found = examine(Registry())
    return next((said for (name, _), said in found.items() if name == distribution), ())


def problems(distribution: str = "acme-rl") -> list[str]:
    return [complaint.problem for complaint in complaints(distribution)]


@pytest.fixture
def parts(tmp_path: Path) -> str:
    """A module of targets that is heavy to import: whoever does so is found out."""
    source = "import this_is_too_heavy\nfrom math import sqrt as root\nRight = 1\nLeft: int = 2\nNot: int\n"
    source += "class Judge: ...\ndef judge(): ...\nasync def wait(): ...\n"
    (tmp_path / "acme_parts.py").write_text(source, encoding="utf-8")
    return "acme_parts"


@pytest.mark.parametrize("name", ["Judge", "judge", "wait", "Right", "Left", "root", "Judge.deeper"])
def test_a_target_that_its_module_writes_is_not_imported(name: str, parts: str, install: Install) -> None:
    install("acme-rl", REWARD.format(id="exact", target=f"{parts}:{name}"))
    assert problems() == []
    assert parts not in sys.modules


def test_a_missing_attribute_is_told_with_the_nearest(install: Install, tmp_path: Path) -> None:
    (tmp_path / "acme_rewards.py").write_text("class Exact: ...\n", encoding="utf-8")
    install("acme-rl", REWARD.format(id="exact", target="acme_rewards:Exakt"))
    (complaint,) = complaints()
    assert complaint.problem == (
        "target of the reward 'exact': 'acme_rewards:Exakt' is not there: acme_rewards has no 'Exakt'; "
        "did you mean 'Exact'?"
    )
    assert complaint.fix == "mend the spec in acme_rl_plugin, or pip install --upgrade acme-rl"


def test_a_name_that_is_made_at_import_counts_as_there(install: Install, tmp_path: Path) -> None:
    (tmp_path / "acme_made.py").write_text("globals()['Exact'] = int\n", encoding="utf-8")
    install("acme-rl", REWARD.format(id="exact", target="acme_made:Exact"))
    assert problems() == []


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("acme_nowhere:Exact", "'acme_nowhere:Exact' needs the module 'acme_nowhere': it is not installed"),
        ("acme_rl_plugin", "'acme_rl_plugin' must be written 'module:name' or 'file.py:name': acme_rl_plugin"),
        ("acme_wrong:Exact", "'acme_wrong:Exact' cannot be imported: SyntaxError: "),
    ],
)
def test_a_target_that_leads_nowhere_is_told(target: str, says: str, install: Install, tmp_path: Path) -> None:
    (tmp_path / "acme_wrong.py").write_text("class Exact(:\n", encoding="utf-8")
    install("acme-rl", REWARD.format(id="exact", target=target))
    (problem,) = problems()
    assert problem.startswith(f"target of the reward 'exact': {says}")


def test_every_path_of_a_spec_is_looked_at(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_datasets():\n    yield DatasetSpec(id='rows', target='math:sqrt', config='math:a', "
    install("acme-rl", HEAD + source + "prepare='math:b', prepare_config='math:c')\n")
    assert [problem.partition(":")[0] for problem in problems()] == [
        "target of the dataset 'rows'",
        "config of the dataset 'rows'",
        "prepare of the dataset 'rows'",
        "prepare_config of the dataset 'rows'",
    ][1:]


def test_a_recipe_that_the_wheel_forgot_is_told(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_recipes():\n    yield RecipeSpec(id='acme/default', target='{}')\n"
    install("acme-rl", HEAD + source.format("rlcore:recipes/default.toml"))
    install("other-rl", HEAD + source.format("acme_nowhere:default.toml"))
    (first,) = [problem for problem in problems() if problem.startswith("target")]
    assert first == (
        "target of the recipe 'acme/default': the file 'rlcore:recipes/default.toml' is not in its package: "
        "the package was built without it"
    )
    (second,) = [problem for problem in problems("other-rl") if problem.startswith("target")]
    assert second == (
        "target of the recipe 'acme/default': no package 'acme_nowhere' holds 'acme_nowhere:default.toml'"
    )


def test_an_id_of_two_plugins_is_told_to_both(install: Install) -> None:
    for name in ("acme-rl", "other-rl"):
        install(name, REWARD.format(id="exact", target="math:sqrt"))
    (complaint,) = complaints()
    assert complaint.problem == "the reward 'exact' is also offered by other-rl 1.2, so nobody can use either"
    assert complaint.fix == "RLCORE_DISABLE_PLUGINS=acme-rl leaves this one out"
    assert problems("other-rl") == ["the reward 'exact' is also offered by acme-rl 1.2, so nobody can use either"]


def test_an_id_of_rlcores_own_is_told_to_the_plugin_alone(install: Install) -> None:
    source = "@hookimpl\ndef rlcore_trackers():\n    yield TrackerSpec(id='console', target='math:sqrt')\n"
    install("acme-rl", HEAD + source)
    (complaint,) = complaints()
    assert complaint.problem == "the tracker 'console' is one of rlcore-core's own, so this one is never used"
    assert complaint.fix == "give it another id in acme_rl_plugin"
    assert problems("rlcore-core") == []


def test_a_plugin_without_hooks_is_told(install: Install) -> None:
    install("acme-rl", "x = 1\n")
    (complaint,) = complaints()
    assert complaint.problem == "acme_rl_plugin has no hooks, so it offers nothing"
    assert complaint.fix == "write @rlcore.hookimpl above functions named rlcore_…"


def test_a_complaint_is_shown_and_counts_as_a_failure(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["rlcore", "plugins", "list", "--check", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(str(ended.value.code)), capsys.readouterr().out

    install("acme-rl", "print('Welcome!')\n" + REWARD.format(id="exact", target="math:sqrt"), plugin="acme")
    status, printed = check()
    assert status == 1
    lines = [line.strip() for line in printed.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("! acme "))
    assert lines[place].endswith("1 reward")
    assert lines[place + 1 : place + 3] == [
        "it prints when it is imported: 'Welcome!'",
        "fix: take the print out of acme_rl_plugin",
    ]
    sys.modules.pop("acme_rl_plugin")
    status, printed = check("--json")
    assert status == 1
    (row,) = [row for row in json.loads(printed) if row["name"] == "acme"]
    assert row["state"] == "ok"
    assert row["complaints"] == [
        {"problem": "it prints when it is imported: 'Welcome!'", "fix": "take the print out of acme_rl_plugin"}
    ]


def test_looking_at_everything_that_is_installed_imports_nothing_heavy() -> None:
    code = "import sys; from rlcore.examination import examine; from rlcore.registry import Registry; "
    code += f"examine(Registry()); print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
