"""Ctrl-C twice ends the command, whatever runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., None]

COMMAND = """
import subprocess, sys, threading, time, click
from rlcore import CommandSpec, hookimpl

@hookimpl
def rlcore_commands():
    yield CommandSpec(id="work", target="acme_rl_plugin:work")

def hang():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass

@click.command()
@click.argument("how")
def work(how):
    if how == "child":
        print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid, flush=True)
    else:
        print(0, flush=True)
    if how == "threads":
        threading.Thread(target=hang).start()
        threading.Event().wait()
    if how == "loop":
        import asyncio
        async def run():
            await asyncio.to_thread(hang)
        asyncio.run(run())
    hang()
"""


def runs(process: int) -> bool:
    """Whether a process exists, and does not only wait for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", ["sleep", "threads", "loop", "child"])
def test_second_interrupt_ends_the_command_within_a_second(how: str, install: Install, tmp_path: Path) -> None:
    install("acme-rl", COMMAND)
    process = subprocess.Popen(
        [sys.executable, "-m", "rlcore", "work", how],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        started = time.monotonic()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(timeout=10)
        assert time.monotonic() - started < 1.5
        assert process.returncode in (130, 1)
    finally:
        process.kill()
        process.communicate()
    assert not child or not runs(child)


LATE = """
import os, signal
from rlcore.session.exits import exits_with

class Last:
    def __del__(self, send=os.kill, me=os.getpid(), number=signal.NUMBER):
        send(me, number)

kept = Last()  # deleted with the modules, after Python has removed its handlers
raise SystemExit(exits_with(130))
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_signal_while_the_interpreter_ends_does_not_change_the_status(number: str) -> None:
    code = "import signal; signal.signal(2, signal.default_int_handler)" + LATE.replace("NUMBER", number)
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 130
