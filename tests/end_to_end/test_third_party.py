"""Broken plugins of third parties are reported, and do not affect others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from installations import Installation
from rlcore.plugins.creation import create


@dataclass(frozen=True)
class Faulty:
    """A package with one fault."""

    source: str | None
    problem: str
    """The expected text in the reported problem: the name at fault."""
    fix: str
    """The expected text in the reported fix."""
    plugin: str | None = None
    """Its name, if it differs from the distribution."""
    module: str | None = None
    """The module in the entry point, if it differs from the package."""
    requires: str = "rlcore-core>=0.1,<0.2"


HOOKS = "from rlcore import EnvironmentSpec, RewardSpec, hookimpl\n\n@hookimpl\ndef "
REWARD = HOOKS + "rlcore_rewards():\n    yield RewardSpec(id='{0}', target='{1}:Reward')\n\nclass Reward: ...\n"
DEPOT = (
    HOOKS + "rlcore_environments():\n    yield EnvironmentSpec(id='depot', target='{0}:Depot')\n\nclass Depot: ...\n"
)

FAULTY: Mapping[str, Faulty] = {
    "faulty-import": Faulty(
        "import no_such_library\n",
        "No module named 'no_such_library' (faulty_import.py:1)",
        "RLCORE_DISABLE_PLUGINS=faulty-import",
    ),
    "fork-of-warehouse": Faulty(
        REWARD.format("fork", "fork_of_warehouse"),
        "fork-of-warehouse 2.0 and rl-plugin-warehouse 0.1.0",
        "pip uninstall fork-of-warehouse",
        plugin="warehouse",
    ),
    "depot-of-one": Faulty(DEPOT.format("depot_of_one"), "depot-of-two 2.0", "RLCORE_DISABLE_PLUGINS=depot-of-one"),
    "depot-of-two": Faulty(DEPOT.format("depot_of_two"), "depot-of-one 2.0", "RLCORE_DISABLE_PLUGINS=depot-of-two"),
    "faulty-version": Faulty(
        "raise SystemExit('never imported')\n",
        "rlcore-core>=7",
        "pip install --upgrade faulty-version 'rlcore-core>=7'",
        requires="rlcore-core>=7",
    ),
    "faulty-hook": Faulty(
        REWARD.format("misspelt", "faulty_hook").replace("rlcore_rewards", "rlcore_reward"),
        "unknown hook 'rlcore_reward'; did you mean 'rlcore_rewards'?",
        "RLCORE_DISABLE_PLUGINS=faulty-hook",
    ),
    "faulty-target": Faulty(
        REWARD.format("absent", "faulty_target").replace("class Reward", "class Rewarded"),
        "did you mean 'Rewarded'?",
        "pip install --upgrade faulty-target",
    ),
    "faulty-entry": Faulty(
        REWARD.format("unreached", "faulty_entry"),
        "'faulty_entry_plugin'",
        "pip install --force-reinstall faulty-entry",
        module="faulty_entry_plugin",
    ),
    "faulty-raise": Faulty(
        HOOKS + "rlcore_rewards():\n    raise OSError('no licence file')\n",
        "OSError: no licence file (faulty_raise.py:5)",
        "RLCORE_DISABLE_PLUGINS=faulty-raise",
    ),
    "faulty-print": Faulty(
        "print('Thank you for choosing us!')\n" + REWARD.format("loud", "faulty_print"),
        "'Thank you for choosing us!'",
        "faulty_print",
    ),
    "faulty-torch": Faulty("import torch\n" + REWARD.format("slow", "faulty_torch"), "torch", "torch"),
}


def package(folder: Path, name: str, faulty: Faulty) -> Path:
    """Write the package."""
    module = name.replace("-", "_")
    (folder / name).mkdir(parents=True)
    (folder / name / f"{module}.py").write_text(faulty.source or "", encoding="utf-8")
    project = f"""
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "2.0"
dependencies = ["{faulty.requires}"]

[project.entry-points."rlcore.plugins"]
{faulty.plugin or name} = "{faulty.module or module}"

[tool.hatch.build.targets.wheel]
include = ["{module}.py"]
"""
    (folder / name / "pyproject.toml").write_text(project, encoding="utf-8")
    return folder / name


@pytest.mark.long
@pytest.mark.timeout(600)
def test_faulty_plugins_are_reported_and_isolated(tmp_path: Path) -> None:
    installation = Installation.create(tmp_path)
    create("environment", "warehouse", tmp_path / "warehouse")
    folders = [package(tmp_path / "faulty", name, faulty) for name, faulty in FAULTY.items()]
    # Without --no-deps, pip rejects the package that requires another version of rlcore.
    installation.pip_install(tmp_path / "warehouse", *folders, options=("--no-deps",))

    checked = installation.rlcore("plugins", "list", "--check", "--json")
    assert checked.returncode == 1, checked.stderr
    rows = {row["distribution"]: row for row in json.loads(checked.stdout)}
    for name, faulty in FAULTY.items():
        reports = [each for each in (rows[name], *rows[name]["complaints"]) if each["problem"]]
        assert len(reports) == 1, (name, reports)
        assert faulty.problem in reports[0]["problem"]
        assert faulty.fix in reports[0]["fix"]
    fine = {name for name, row in rows.items() if row["state"] == "ok" and not row["complaints"]}
    assert fine >= {"rlcore-core", "rlcore-rollout", "rlcore-trainer", "rl-plugin-gsm8k-tools"}

    shown = installation.rlcore("plugins", "list", "--check")
    assert shown.returncode == 1
    for name, faulty in FAULTY.items():
        assert name in shown.stdout
        assert faulty.problem in shown.stdout
        assert faulty.fix in shown.stdout
    assert "Thank you" not in shown.stdout.replace(FAULTY["faulty-print"].problem, "")

    beside = installation.rlcore("run", "--dry-run", "-v", "-p", "gsm8k-tools")
    assert beside.returncode == 0, beside.stderr
    assert beside.stdout.lstrip().startswith(("#", "summary"))
    conflict = installation.rlcore("run", "--dry-run", "-v", "-p", "warehouse")
    assert conflict.returncode == 2
    assert "the plugin 'warehouse'" in conflict.stderr
    assert "fork-of-warehouse" in conflict.stderr
    ambiguous = installation.rlcore("run", "--dry-run", "-v", "-p", "gsm8k-tools", "environment.id=depot")
    assert ambiguous.returncode == 2
    assert "the environment 'depot'" in ambiguous.stderr
    assert "depot-of-one" in ambiguous.stderr
