"""A run whose reward and half of whose environments are on another host, a network namespace; also with a cut link."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from finished_runs import evaluations, metrics, numbers, succeeded
from other_host import OtherHost
from preloaded import rlcore_command
from running_servers import serving

TOKEN = "a token of the tests"
CUT_S = 15.0
SETTINGS = ("trainer.tasks_per_step=4", "trainer.steps=8", "warmup.steps=10", "evaluation.every=0", "name=run")


@pytest.fixture
def services(other: OtherHost, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The overrides of a run that uses the servers."""
    with ExitStack() as stack:

        def started(*words: str, host: str = "127.0.0.1", before: Sequence[str] = ()) -> str:
            served = serving(*words, "--host", host, token=TOKEN, folder=tmp_path, before=before)
            return stack.enter_context(served)[1]

        there = {"host": other.address, "before": other.inside}
        offered = ("environment", "-p", "gsm8k-tools", "--most", "16")
        environments = [started(*offered), started(*offered, **there)]
        reward = started("reward", "math-numeric-equal", **there)
        yield f"environment.servers=[{','.join(environments)}]", f"reward.0.servers=[{reward}]"


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_run_learns_the_same_as_on_one_host(
    services: tuple[str, str], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLCORE_SERVER_TOKEN", TOKEN)
    for name, keys in (("here", ()), ("there", services)):
        words = ("trainer.steps=15", "evaluation.every=15", "checkpoint.every=0", f"seed={seed}", f"name={name}")
        succeeded(rlcore_command(["run", "-p", "gsm8k-tools", *words, *keys], tmp_path, timeout_s=900))
    first, last = evaluations(tmp_path / "runs/there").values()
    print(f"seed {seed}: {first:.3f} to {last:.3f}")
    assert first < 0.3
    assert last > 0.8
    assert numbers(tmp_path / "runs/there") == numbers(tmp_path / "runs/here")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_run_goes_on_after_a_link_was_cut(other: OtherHost, services: tuple[str, str], tmp_path: Path) -> None:
    printed, cut_at = "", 0.0
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "rlcore", "run", "-p", "gsm8k-tools", *SETTINGS, *services],
        cwd=tmp_path,
        env={**os.environ, "RLCORE_SERVER_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            printed += line
            if line.startswith("step     2 "):
                other.cut()
                cut_at = time.monotonic()
                threading.Timer(CUT_S, other.connect).start()
    assert run.returncode == 0, printed
    assert time.monotonic() - cut_at > CUT_S, printed
    rows = metrics(tmp_path / "runs/run")
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert rows[0]["not_scored"] == rows[-1]["not_scored"] == 0
    assert sum(row["not_scored"] for row in rows) <= 16, "at most the episodes that were on the other host"
    assert not [name for row in rows for name in row if name.startswith("reward_error")], "calls were made again"
