"""``rlcore serve`` and runs that use it: the numbers of a local run, and servers that are lost."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from finished_runs import metrics, numbers
from preloaded import rlcore_command
from running_servers import serving

TOKEN = "a token of the tests"
SMALL = ("warmup.steps=2", "evaluation.every=0", "trainer.steps=2")


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_SERVER_TOKEN", TOKEN)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("-p", "gsm8k-tools", "trainer.tasks_per_step=4"), marks=pytest.mark.slow, id="chat"),
        pytest.param(
            ("-p", "gymnasium", "-r", "control", "trainer.tasks_per_step=8", "rollout.group_size=1", "warmup.steps=0"),
            marks=pytest.mark.long,
            id="control",
        ),
    ],
)
def test_run_has_the_numbers_of_one_with_the_environment_on_this_machine(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    here = rlcore_command(["run", *SMALL, *words, "name=here"], tmp_path)
    assert here.returncode == 0, here.stderr
    offered = [word for word in words if "=" not in word]
    with serving("environment", *offered, token=TOKEN, folder=tmp_path) as (process, address):
        there = rlcore_command(["run", *SMALL, *words, "name=there", f"environment.servers=[{address}]"], tmp_path)
        assert there.returncode == 0, there.stderr
        assert f"runs on the server {address} (Python" in there.stdout
        assert numbers(tmp_path / "runs/here") == numbers(tmp_path / "runs/there")
        left = children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0
    assert not [pid for pid in left if Path(f"/proc/{pid}").exists()]
    stored = (tmp_path / "runs/there/config.toml").read_text(encoding="utf-8")
    assert address in stored
    assert TOKEN not in stored + (tmp_path / "runs/there/output.log").read_text(encoding="utf-8")


@pytest.mark.long
def test_run_has_the_numbers_of_one_with_the_reward_on_this_machine(tmp_path: Path) -> None:
    words = ("-p", "gsm8k-tools", *SMALL, "trainer.tasks_per_step=4", "warmup.steps=10")
    here = rlcore_command(["run", *words, "name=here"], tmp_path)
    assert here.returncode == 0, here.stderr
    with serving("reward", "math-numeric-equal", token=TOKEN, folder=tmp_path) as (process, address):
        there = rlcore_command(["run", *words, "name=there", f"reward.0.servers=[{address}]"], tmp_path)
        assert there.returncode == 0, there.stderr
        assert f"is computed by the server {address} (at most 64 at a time)" in there.stdout
        assert numbers(tmp_path / "runs/here") == numbers(tmp_path / "runs/there")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0
    lost = rlcore_command(["run", *words, "name=lost", f"reward.0.servers=[{address}]"], tmp_path)
    assert lost.returncode == 2
    assert "Connection refused" in lost.stderr
    assert "start rlcore serve reward there" in lost.stderr


@pytest.mark.long
def test_run_goes_on_with_the_servers_that_are_left(tmp_path: Path) -> None:
    start = partial(serving, "environment", "-p", "gsm8k-tools", "--most", "4", token=TOKEN, folder=tmp_path)
    with start() as (lost, first), start() as (_, second):
        settings = ("trainer.tasks_per_step=4", "trainer.steps=4", "warmup.steps=2", "evaluation.every=0")
        words = ["-p", "gsm8k-tools", *settings, "name=run", f"environment.servers=[{first},{second}]"]
        with subprocess.Popen(
            [sys.executable, "-u", "-m", "rlcore", "run", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as run:
            assert run.stdout is not None
            printed = ""
            for line in run.stdout:
                printed += line
                if line.startswith("step     1 "):
                    lost.kill()
        assert run.returncode == 0, printed
    rows = metrics(tmp_path / "runs/run")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["not_scored"] == rows[3]["not_scored"] == 0
    assert sum(row["not_scored"] for row in rows) <= 8  # at most those that were on the lost server


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["-p", "visual-search"], "runs code of the model in the sandbox of the run"),
        (["-p", "gsm8k-tools", "environment.max_turns=no"], "environment.max_turns"),
        (["-p", "gsm8k-tools", "environment.servers=[a:1]", "environment.python=python3"], "set python or servers"),
        (["-p", "gsm8k-tools", "--port", "PORT"], "cannot listen on 127.0.0.1:PORT"),
    ],
)
def test_what_cannot_be_served_is_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
        done = rlcore_command(["serve", "environment", *(word.replace("PORT", port) for word in words)], tmp_path)
    assert done.returncode == 2, done.stdout
    assert reason.replace("PORT", port) in done.stderr
    assert "Traceback" not in done.stderr
