"""A plugin of somebody else: really installed, found, tested and trained, and harmed by no broken one beside it."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from workspace import ROOT

EXAMPLE = ROOT / "examples" / "third-party-environment"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A virtual environment of its own, on top of the packages of the present one."""

    folder: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        hidden = {"PYTHONPATH", "VIRTUAL_ENV", "RLCORE_DISABLE_PLUGINS"}
        return subprocess.run(
            [str(self.folder / "environment" / "bin" / "python"), *arguments],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name not in hidden},
            capture_output=True,
            text=True,
            check=False,
        )

    def rlcore(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "rlcore", *arguments)

    def pip_install(self, *folders: Path, options: tuple[str, ...] = ()) -> None:
        # What building and running needs is there already, so nothing is fetched.
        there = ("--no-index", "--no-build-isolation", *options)
        done = self.python("-m", "pip", "install", *there, *map(str, folders))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    venv.create(tmp_path / "environment", with_pip=True)
    (own,) = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    lines = [f"import site; site.addsitedir({folder!r})" for folder in site.getsitepackages()]
    (own / "present_environment.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Installation(folder=tmp_path)


def copied(folder: Path) -> Path:
    """The example without what was built beside it; building must not write into the repository."""
    ignored = shutil.ignore_patterns("__pycache__", "dist", "build", "*.egg-info", ".*")
    return Path(shutil.copytree(EXAMPLE, folder / "example", ignore=ignored))


def test_the_example_passes_its_own_tests(tmp_path: Path) -> None:
    """The light way: the metadata of an installation and the sources beside it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    information = tmp_path / f"rl_plugin_warehouse-{project['version']}.dist-info"
    information.mkdir()
    metadata = [f"Name: {project['name']}", f"Version: {project['version']}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    (information / "METADATA").write_text("\n".join(metadata) + "\n", encoding="utf-8")
    entries = [f"{name} = {target}" for name, target in project["entry-points"]["rlcore.plugins"].items()]
    (information / "entry_points.txt").write_text("[rlcore.plugins]\n" + "\n".join(entries) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{EXAMPLE / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_is_installed_listed_tested_and_learns(installation: Installation) -> None:
    """Reinforcement alone lifts accuracy: the warm-up leaves it near zero, and without a gradient it stays there."""
    example = copied(installation.folder)
    installation.pip_install(example)
    listed = installation.rlcore("plugins", "list", "--check")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "✓ warehouse " in listed.stdout
    tested = installation.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(example / "tests"))
    assert tested.returncode == 0, tested.stdout + tested.stderr

    ran = installation.rlcore("run", "--plugin", "warehouse", "trainer.steps=6", "evaluation.every=6", "name=run")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    metrics = (installation.folder / "runs" / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    accuracy = [line["evaluation/accuracy"] for line in map(json.loads, metrics) if "evaluation/accuracy" in line]
    assert accuracy[0] < 0.2
    assert accuracy[-1] > 0.6


@dataclass(frozen=True, kw_only=True)
class Faulty:
    """A package with one thing wrong, and what has to be said about it."""

    source: str | None
    says: str
    mend: str
    plugin: str | None = None
    """Its name where that is not the distribution's."""
    module: str | None = None
    """What the entry point names where that is not the package's own module."""
    requires: str = "rlcore-core>=0.1,<0.2"


HOOKS = "from rlcore import EnvironmentSpec, RewardSpec, hookimpl\n\n@hookimpl\ndef "
REWARD = HOOKS + "rlcore_rewards():\n    yield RewardSpec(id='{0}', target='{1}:Reward')\n\nclass Reward: ...\n"
DEPOT = (
    HOOKS + "rlcore_environments():\n    yield EnvironmentSpec(id='depot', target='{0}:Depot')\n\nclass Depot: ...\n"
)

FAULTY: Mapping[str, Faulty] = {
    "faulty-import": Faulty(
        source="import a_library_that_nobody_has\n",
        says="ModuleNotFoundError: No module named 'a_library_that_nobody_has' (faulty_import.py:1)",
        mend="install what brings the module 'a_library_that_nobody_has', or RLCORE_DISABLE_PLUGINS=faulty-import",
    ),
    "fork-of-warehouse": Faulty(
        source=REWARD.format("fork", "fork_of_warehouse"),
        plugin="warehouse",
        says="the name 'warehouse' is offered by fork-of-warehouse 2.0 and rl-plugin-warehouse 1.0.0; "
        "neither is loaded",
        mend="keep one: pip uninstall fork-of-warehouse, or RLCORE_DISABLE_PLUGINS=fork-of-warehouse, drops this one",
    ),
    "depot-of-one": Faulty(
        source=DEPOT.format("depot_of_one"),
        says="the environment 'depot' is also offered by depot-of-two 2.0, so nobody can use either",
        mend="RLCORE_DISABLE_PLUGINS=depot-of-one leaves this one out",
    ),
    "depot-of-two": Faulty(
        source=DEPOT.format("depot_of_two"),
        says="the environment 'depot' is also offered by depot-of-one 2.0, so nobody can use either",
        mend="RLCORE_DISABLE_PLUGINS=depot-of-two leaves this one out",
    ),
    "faulty-version": Faulty(
        source="raise SystemExit('never imported')\n",
        requires="rlcore-core>=7",
        says="faulty-version 2.0 wants rlcore-core>=7, found ",
        mend="pip install --upgrade faulty-version 'rlcore-core>=7'",
    ),
    "faulty-hook": Faulty(
        source=REWARD.format("misspelt", "faulty_hook").replace("rlcore_rewards", "rlcore_reward"),
        says="unknown hook 'rlcore_reward'; did you mean 'rlcore_rewards'?",
        mend="pip install --upgrade faulty-hook, or RLCORE_DISABLE_PLUGINS=faulty-hook",
    ),
    "faulty-target": Faulty(
        source=REWARD.format("absent", "faulty_target").replace("class Reward", "class Rewarded"),
        says="target of the reward 'absent': 'faulty_target:Reward' is not there: faulty_target has no 'Reward'; "
        "did you mean 'Rewarded'?",
        mend="mend the spec in faulty_target, or pip install --upgrade faulty-target",
    ),
    "faulty-entry": Faulty(
        source=REWARD.format("unreached", "faulty_entry"),
        module="faulty_entry_plugin",
        says="its entry point names the module 'faulty_entry_plugin', which is not there",
        mend="pip install --force-reinstall faulty-entry",
    ),
    "faulty-raise": Faulty(
        source=HOOKS + "rlcore_rewards():\n    raise OSError('no licence file')\n",
        says="rlcore_rewards failed: OSError: no licence file (faulty_raise.py:5)",
        mend="pip install --upgrade faulty-raise, or RLCORE_DISABLE_PLUGINS=faulty-raise",
    ),
    "faulty-print": Faulty(
        source="print('Thank you for choosing us!')\n" + REWARD.format("loud", "faulty_print"),
        says="it prints when it is imported: 'Thank you for choosing us!'",
        mend="take the print out of faulty_print",
    ),
    "faulty-torch": Faulty(
        source="import torch\n" + REWARD.format("slow", "faulty_torch"),
        says="its import brings torch",
        mend="leave torch",
    ),
}


def package(folder: Path, name: str, faulty: Faulty) -> Path:
    """Write the package, as its author would."""
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faulty_plugins_are_each_told_and_harm_nobody(installation: Installation) -> None:
    folders = [package(installation.folder / "faulty", name, faulty) for name, faulty in FAULTY.items()]
    # pip itself refuses the one that wants another rlcore, unless it is told not to look.
    installation.pip_install(copied(installation.folder), *folders, options=("--no-deps",))

    checked = installation.rlcore("plugins", "list", "--check", "--json")
    assert checked.returncode == 1, checked.stderr
    rows = {row["distribution"]: row for row in json.loads(checked.stdout)}
    for name, faulty in FAULTY.items():
        told = [(rows[name]["problem"], rows[name]["fix"])]
        told += [(complaint["problem"], complaint["fix"]) for complaint in rows[name]["complaints"]]
        said = [(problem, fix) for problem, fix in told if problem]
        assert len(said) == 1, (name, said)
        assert said[0][0].startswith(faulty.says)
        assert said[0][1].startswith(faulty.mend)
    fine = {name for name, row in rows.items() if row["state"] == "ok" and not row["complaints"]}
    assert fine >= {"rlcore-core", "rlcore-rollout", "rlcore-trainer", "rl-plugin-gsm8k-tools"}

    shown = installation.rlcore("plugins", "list", "--check")
    assert shown.returncode == 1
    for faulty in FAULTY.values():
        assert faulty.says in shown.stdout
        assert f"fix: {faulty.mend}" in shown.stdout
    assert "Thank you" not in shown.stdout.replace(FAULTY["faulty-print"].says, "")

    beside = installation.rlcore("run", "--dry-run", "-p", "gsm8k-tools")
    assert beside.returncode == 0, beside.stderr
    assert beside.stdout.lstrip().startswith(("#", "summary"))
    refused = installation.rlcore("run", "--dry-run", "-p", "warehouse")
    assert refused.returncode == 2
    assert "the plugin 'warehouse' is in conflict" in refused.stderr
    asked = installation.rlcore("run", "--dry-run", "-p", "gsm8k-tools", "environment.id=depot")
    assert asked.returncode == 2
    assert "the environment 'depot' is offered twice" in asked.stderr
