"""The commands ``rlcore view`` and ``rlcore report``."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click
from rlcore.cli.output import examples
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import UserError
from rlcore.rollouts.records import record_name
from rlcore.session.exits import stops_handled
from rlcore.transport.network import in_url, is_loopback, listening_on

PORT = 7080
TOKEN_BYTES = 24
FOLDER = "runs"
"""The folder of runs of the current folder, which is shown if no run is named."""


@click.command(
    epilog=examples(
        "rlcore view                              all runs in runs/",
        "rlcore view runs/first",
        "rlcore view runs/first runs/second       two runs, to compare them",
        "rlcore view /data/runs --port 7081",
        "rlcore view answers.jsonl.gz             a file of rlcore eval --save",
        "ssh -N -L 7080:127.0.0.1:7080 MACHINE    on your machine, for runs on another one",
    )
)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--browser/--no-browser", default=True, help="Open the page, if this machine has a display.")
def view(runs: tuple[str, ...], host: str, port: int, browser: bool) -> int:
    """Show runs in the browser, until Ctrl-C.

    RUN is a run directory, a checkpoint in one, a folder of run directories, or a file of rollouts; by default the
    folder runs. Runs that go on are followed. Nothing is written into them.
    """
    from rlcore_view.library import READING_S, Library
    from rlcore_view.server import Application, Server

    library = Library([Path(run) for run in runs or (FOLDER,)], reading_s=READING_S)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with listening_on(host, port) as listening:
        port = listening.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, in_url(host))
        address = f"http://{shown}:{port}/?ticket={token}"
        say(f"view      {counted(len(library.runs()), 'run')}; Ctrl-C ends it")
        say(f"open      {address}")
        if is_loopback(host):
            say(f"remote    on your machine: ssh -N -L {port}:127.0.0.1:{port} MACHINE, then open the same address")
        else:
            say("warning   the connections are not encrypted: whoever sees them can read the runs and the token")
        server = Server(Application(library, token, host, port))
        opened = _opened(address) if browser and _has_display() else nullcontext()
        with stops_handled(lambda *_: server.stop()), opened:
            server.run(sockets=[listening])
    return 0


@click.command(
    epilog=examples(
        "rlcore report runs/first                            writes first.html",
        "rlcore report runs/first runs/second                writes report.html",
        "rlcore report runs/first --trajectories 40",
        "rlcore report answers.jsonl.gz                       a file of rlcore eval --save",
    )
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file, which is replaced if it exists; by default NAME.html, or report.html for several runs.",
)
@click.option(
    "--trajectories", type=click.IntRange(0, 1000), default=12, show_default=True, help="Trajectories of each run."
)
def report(runs: tuple[str, ...], out: Path | None, trajectories: int) -> None:
    """Write runs as one HTML file, which opens without a server and can be sent."""
    from rlcore_view.report import write_report

    paths = [Path(run) for run in runs]
    out = out or Path(f"{record_name(paths[0].resolve())}.html" if len(paths) == 1 else "report.html")
    if not out.parent.is_dir():
        raise UserError(f"the folder {out.parent} does not exist", where="--out", fix="create it")
    contents = write_report(paths, out, trajectories=trajectories)
    lost = [(contents.dropped, "trajectory"), (contents.left_out, "picture")]
    left = "".join(f"; {counted(count, what)} left out, to keep it small" for count, what in lost if count)
    size = out.stat().st_size / 1e6
    say(f"report    {out}, {size:.1f} MB, {counted(contents.trajectories, 'trajectory')}{left}")


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open the page through a private file: every user of the machine can read the command line of a browser."""
    with tempfile.TemporaryDirectory(prefix="rlcore-view-") as folder:
        page = Path(folder) / "open.html"
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
        webbrowser.open(page.as_uri())
        yield


def _has_display() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


__all__ = ["report", "view"]
