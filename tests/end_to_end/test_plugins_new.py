"""The packages that ``rlcore plugins new`` creates are installed, pass their tests and are used in runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from example_plugin import search_path
from finished_runs import succeeded
from installations import Installation
from package_matrix import build, locked_versions, must
from preloaded import rlcore_command
from rlcore.errors import UserError
from rlcore.plugins.creation import NAMES, PREFIX, TEMPLATES, check_name, create
from workspace import distribution, members, read_toml

OURS = {kind: f"our-{kind}" for kind in NAMES}
TINY = ("warmup.steps=2", "trainer.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2", "evaluation.tasks=2")
TINY_CONTROL = ("trainer.steps=1", "evaluation.every=0")


def test_templates_require_this_version() -> None:
    version = next(member.version for member in members() if member.name == "rlcore-core")
    major, minor, _ = version.split(".")
    for name in NAMES.values():
        project = read_toml(TEMPLATES / f"{PREFIX}{name}" / "pyproject.toml")["project"]
        for requirement in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
            if distribution(requirement) in {member.name for member in members()}:
                assert requirement.endswith(f">={major}.{minor},<{major}.{int(minor) + 1}"), (name, requirement)


@pytest.mark.parametrize("name", [member.name for member in members()])
def test_names_of_the_distributions_of_rlcore_are_not_free(name: str) -> None:
    with pytest.raises(UserError, match="a name of rlcore"):
        check_name(name.removeprefix(PREFIX))


def metrics(folder: Path, name: str, *arguments: str, site: Path) -> list[dict[str, float]]:
    """What a run with the plugins in ``site`` logged."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    succeeded(rlcore_command(("run", *arguments, f"name={name}"), folder, environment=environment))
    lines = (folder / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_created_plugins_work_in_one_environment(tmp_path: Path) -> None:
    installation = Installation.create(tmp_path)
    folders = [tmp_path / name for name in OURS.values()]
    for (kind, name), folder in zip(OURS.items(), folders, strict=True):
        create(kind, name, folder)
    installation.pip_install(*folders, options=("--no-deps",))
    listed = installation.rlcore("plugins", "list", "--check")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert all(f"✓ {name} " in listed.stdout for name in OURS.values()), listed.stdout
    tested = installation.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, folders))
    assert tested.returncode == 0, tested.stdout + tested.stderr

    parts = (
        *(f"reward.0.id={OURS['reward']}", f"environment.tools={OURS['tool']}", f"rollout.engine={OURS['engine']}"),
        *(f"algorithm.advantage={OURS['algorithm']}", f"trackers.use=[console,jsonl,{OURS['tracker']}]"),
    )
    together = metrics(tmp_path, "together", "-p", "gsm8k-tools", *parts, *TINY, site=installation.site)
    assert {f"reward/{OURS['reward']}", "advantage/clipped"} <= set(together[-1])
    assert "2,reward/mean," in (tmp_path / "runs" / "together" / "metrics.csv").read_text(encoding="utf-8")
    metrics(tmp_path, "data", "-p", OURS["dataset"], *TINY, site=installation.site)
    metrics(tmp_path, "policy", "-p", OURS["policy"], *TINY_CONTROL, site=installation.site)
    learned = metrics(
        tmp_path, "doors", "-p", OURS["environment"], "trainer.steps=24", "evaluation.every=24", site=installation.site
    )
    first, last = (line["evaluation/reward"] for line in learned if "evaluation/reward" in line)
    assert first < 0.3
    assert last > 0.5


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("seed", "shuffled"), [(0, False), (1, False), (2, False), (0, True)])
def test_created_environment_is_learned_from_its_rewards(seed: int, shuffled: bool, tmp_path: Path) -> None:
    """A run takes a minute on two cores."""
    create("environment", "doors-of-hall", tmp_path / "plugin")
    search_path(tmp_path / "plugin", tmp_path / "plugin" / "src")
    options = (f"seed={seed}", f"algorithm.shuffle_rewards={str(shuffled).lower()}")
    lines = metrics(tmp_path, "run", "-p", "doors-of-hall", *options, site=tmp_path / "plugin" / "src")
    rewards = [line["evaluation/reward"] for line in lines if "evaluation/reward" in line]
    assert rewards[0] < 0.5
    assert rewards[-1] < 0.5 if shuffled else rewards[-1] > 0.9


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an environment in which only wheels of rlcore are installed, and with all its wheels."""
    folder = tmp_path_factory.mktemp("fresh")
    wheels = build(folder / "wheels")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    must(["uv", "venv", "--quiet", "--no-project", "--seed", "--python", python, "environment"], cwd=folder)
    install = ["uv", "pip", "install", "--quiet", "--python", str(folder / "environment" / "bin" / "python")]
    install += ["--constraint", str(locked_versions(folder)), "--find-links", str(folder / "wheels"), "pytest"]
    needed = ("rlcore", "rl-plugin-gsm8k-tools", "rl-plugin-gymnasium")
    must([*install, *(str(wheels[name]) for name in needed)], cwd=folder)
    return folder


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", NAMES)
def test_printed_commands_work_in_a_fresh_environment(kind: str, fresh: Path) -> None:
    scripts = fresh / "environment" / "bin"
    variables = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **{"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(scripts.parent)},
        **{"PIP_FIND_LINKS": str(fresh / "wheels"), "OMP_NUM_THREADS": "1"},
    }

    def shell(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=fresh, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    name = OURS[kind]
    created = shell(f"rlcore plugins new {name} --kind {kind}")
    install, check, run = [line[10:] for line in created.splitlines()[1:]]
    must(["uv", "build", "--quiet", f"{PREFIX}{name}"], cwd=fresh)
    shell(install)
    assert f"✓ {name} " in shell(check)
    assert "next      rlcore " in shell(
        f"{run} {shlex.join(('name=' + kind, *(TINY_CONTROL if kind == 'policy' else TINY)))}"
    )
