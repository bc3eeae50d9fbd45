"""Rehearse a release: build all distributions, offer them on a local index, and install them as a user does.

::

    uv run python tests/repo/release_rehearsal.py                       # Python 3.11, 3.12 and 3.13
    uv run python tests/repo/release_rehearsal.py --python 3.12
    uv run python tests/repo/release_rehearsal.py --dist DIST           # distributions that exist already

For each Python, an empty environment outside the workspace gets every distribution from the index, and other
distributions from the default index. Then the commands of the README run there: the list of plugins, and training of
the default recipe, shortened. A line says ``ok`` for each Python, with the time of each part.
"""

from __future__ import annotations

import argparse
import functools
import html
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from package_matrix import build, must
from workspace import VERSIONS, distribution, members

SHORT = ("trainer.steps=2", "trainer.tasks_per_step=4", "warmup.steps=2", "evaluation.tasks=8")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def write_index(dist: Path, folder: Path) -> None:
    """Write a simple index (PEP 503) of the distributions in a folder."""
    for file in dist.iterdir():
        if file.suffix in {".whl", ".gz"}:
            project = folder / "simple" / distribution(file.name.split("-")[0])
            project.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, project)
    for project in (folder / "simple").iterdir():
        names = [html.escape(file.name) for file in sorted(project.iterdir())]
        links = (f'<a href="{name}">{name}</a>' for name in names)
        (project / "index.html").write_text("<!DOCTYPE html>\n" + "<br>\n".join(links), encoding="utf-8")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and yield the address of its index."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        server.shutdown()


def rehearse(python: str, index: str, folder: Path) -> list[str]:
    """Install everything in a new environment, and run the commands of the README. Returns the time of each part."""
    parts = []

    def part(name: str, command: list[str]) -> str:
        started = time.monotonic()
        output = must(command, cwd=folder)
        parts.append(f"{name} {time.monotonic() - started:.0f} s")
        return output

    must(["uv", "venv", "--quiet", "--no-project", "--python", python, "environment"], cwd=folder)
    scripts = folder / "environment" / "bin"
    # With its default strategy, uv takes a name from the first index that has it, so never from a foreign index.
    install = ["uv", "pip", "install", "--quiet", "--python", str(scripts / "python"), "--index", index]
    part("install", [*install, *(member.name for member in members())])
    part("check", ["uv", "pip", "check", "--python", str(scripts / "python")])
    part("plugins list", [str(scripts / "rlcore"), "plugins", "list", "--check"])
    printed = part("run", [str(scripts / "rlcore"), "run", "--plugin", "gsm8k-tools", "name=first", *SHORT])
    part("eval", [str(scripts / "rlcore"), "eval", "runs/first", "evaluation.tasks=8"])
    assert "evaluation" in printed, printed
    return parts


def main() -> int:
    """Rehearse on each Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", choices=VERSIONS, help="a version; may be repeated; default: all")
    parser.add_argument("--dist", type=Path, help="a folder of distributions; they are built if it is not given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="release-rehearsal-") as name:
        folder = Path(name)
        dist = arguments.dist or folder / "dist"
        if arguments.dist is None:
            started = time.monotonic()
            print(f"built {len(build(dist))} distributions in {time.monotonic() - started:.0f} s", flush=True)
        write_index(dist, folder)
        with served(folder) as index:
            for python in arguments.python or VERSIONS:
                (folder / python).mkdir()
                print(f"Python {python}: ok ({', '.join(rehearse(python, index, folder / python))})", flush=True)
                shutil.rmtree(folder / python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
