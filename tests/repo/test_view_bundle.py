"""The built page in rlcore-view is that of its sources."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from workspace import ROOT

VIEW = ROOT / "packages" / "rlcore-view"
BUNDLE = VIEW / "src" / "rlcore_view" / "bundle"
LARGEST = 150_000
"""Of the bundle in bytes, compressed."""
NODE = (20, 19)
"""The oldest version of Node that vite supports."""
OFFLINE = ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "ECONNRESET")


def test_bundle_is_small_and_fits_into_a_script_element() -> None:
    outside = rb"</script|</style|<!--|sourceMappingURL|https?://(?!www\.w3\.org/)"
    texts = {path.name: path.read_bytes() for path in BUNDLE.iterdir()}
    assert sorted(texts) == ["view.css", "view.js"]
    assert sum(len(gzip.compress(text)) for text in texts.values()) < LARGEST
    assert not re.search(outside, b"".join(texts.values()))


@pytest.mark.long
def test_build_of_the_sources_gives_the_same_bytes(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or node_version() < NODE:
        pytest.skip(f"the page is built with npm and Node {'.'.join(map(str, NODE))} or newer")
    page = tmp_path / "page"
    shutil.copytree(VIEW / "page", page, ignore=shutil.ignore_patterns("node_modules"))
    # "npm ci" fails if the registry lacks an optional package for another system.
    for command in ("install --no-save --no-audit --no-fund", "run build"):
        done = subprocess.run([npm, *command.split()], cwd=page, capture_output=True, text=True, check=False)
        if any(word in done.stderr for word in OFFLINE):
            pytest.skip("the registry of npm is not reachable")
        assert done.returncode == 0, done.stdout + done.stderr
    built = tmp_path / "src" / "rlcore_view" / "bundle"
    assert {path.name: path.read_bytes() for path in built.iterdir()} == {
        path.name: path.read_bytes() for path in BUNDLE.iterdir()
    }, "run npm install && npm run build in packages/rlcore-view/page"


def node_version() -> tuple[int, ...]:
    done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    return tuple(map(int, re.findall(r"\d+", done.stdout)))
