"""Other ways to install and build: pip from a clone, and hatch in each member."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from package_matrix import locked_versions, must
from workspace import ROOT, Member, closure, members

pytestmark = pytest.mark.long


def clone(folder: Path) -> Path:
    """A copy of the members without build artefacts."""
    for name in ("packages", "plugins"):
        ignored = shutil.ignore_patterns("__pycache__", "dist", "build", "*.egg-info", ".*")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


@pytest.mark.timeout(900)
def test_pip_installs_a_clone(tmp_path: Path) -> None:
    folder = clone(tmp_path / "clone")
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    must(["uv", "venv", "--quiet", "--no-project", "--seed", "--python", python, "environment"], cwd=tmp_path)
    scripts = tmp_path / "environment" / "bin"
    ours = {member.name for member in members()}
    third_party = sorted(frozenset().union(*(closure(name) for name in ours)) - ours)
    # uv installs the large distributions from its cache first, so that pip does not download them.
    versions = locked_versions(tmp_path)
    locked = {line.split("==")[0] for line in versions.read_text(encoding="utf-8").splitlines() if "==" in line}
    install = ["uv", "pip", "install", "--quiet", "--python", str(scripts / "python"), "--constraint", str(versions)]
    must([*install, *(name for name in third_party if name in locked and not name.startswith(OF_TORCH))], cwd=tmp_path)
    folders = [f"./{path.relative_to(folder)}" for path in sorted(folder.glob("p*/*"))]
    must([str(scripts / "python"), "-m", "pip", "install", *folders], cwd=folder)
    assert "run" in must([str(scripts / "rlcore"), "--help"], cwd=tmp_path)
    must([str(scripts / "rlcore"), "plugins", "list", "--check"], cwd=tmp_path)
    must([str(scripts / "python"), "-m", "pip", "check"], cwd=tmp_path)


OF_TORCH = ("nvidia-", "cuda-", "triton")
"""Installed with torch on the platforms that support them."""


@pytest.mark.parametrize("member", members(), ids=lambda member: member.name)
def test_hatch_builds_every_member(member: Member, tmp_path: Path) -> None:
    folder = clone(tmp_path / "clone") / member.folder.relative_to(ROOT)
    hatch = str(Path(sys.executable).parent / "hatch")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "NO_COLOR": "1", "HATCH_DATA_DIR": str(tmp_path / "hatch")}
        environment.pop("VIRTUAL_ENV", None)
        result = subprocess.run(
            [hatch, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    assert run("version").strip() == member.version
    run("build")
    stem = f"{member.name.replace('-', '_')}-{member.version}"
    built = sorted(path.name for path in (folder / "dist").iterdir())
    assert built == [f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"]
