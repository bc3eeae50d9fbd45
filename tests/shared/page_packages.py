"""The packages of npm that the page of ``rlcore view`` is built and tested with."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "packages" / "rlcore-view" / "page"
NODE = (20, 19)
"""The oldest version of Node that vite supports."""
OFFLINE = ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "ECONNRESET")


def installed_page(folder: Path) -> Path:
    """A copy of the sources of the page with its packages. The test is skipped where they cannot be installed."""
    if shutil.which("npm") is None or _node_version() < NODE:
        pytest.skip(f"the page is built with npm and Node {'.'.join(map(str, NODE))} or newer")
    page = folder / "page"
    shutil.copytree(PAGE, page, ignore=shutil.ignore_patterns("node_modules"))
    # "npm ci" fails if the registry lacks an optional package for another system.
    done = npm("install --no-save --no-audit --no-fund", page)
    if any(word in done.stderr for word in OFFLINE):
        pytest.skip("the registry of npm is not reachable")
    assert done.returncode == 0, done.stdout + done.stderr
    return page


def npm(command: str, page: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of npm."""
    return subprocess.run(["npm", *command.split()], cwd=page, capture_output=True, text=True, check=False)


def _node_version() -> tuple[int, ...]:
    done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    return tuple(map(int, re.findall(r"\d+", done.stdout)))
