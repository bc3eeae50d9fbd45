"""Real runs that are killed in one phase after the other, or run out of disk, end as the run that was left alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killed_runs import FIRST, NAME, RESUME, content, differences

ARGUMENTS = (*FIRST, "warmup.steps=40", "trainer.steps=3")


def start(arguments: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    """A process of its own, so that no two share the order of their hashes."""
    folder.mkdir(exist_ok=True)
    with (folder / "said.txt").open("a", encoding="utf-8") as said:
        command = [sys.executable, "-m", "rlcore", *arguments]
        return subprocess.Popen(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, text=True)


def finish(arguments: tuple[str, ...], folder: Path, *, status: int = 0) -> str:
    process = start(arguments, folder)
    said = folder / "said.txt"
    assert process.wait(timeout=300) == status, said.read_text("utf-8")[-3000:]
    return said.read_text("utf-8")


def kill_when(reached: Callable[[], bool], arguments: tuple[str, ...], folder: Path) -> None:
    process = start(arguments, folder)
    while not reached():
        assert process.poll() is None, (folder / "said.txt").read_text("utf-8")[-3000:]
        time.sleep(0.0005)
    process.kill()
    assert process.wait() == -9


@pytest.fixture(scope="module")
def undisturbed(equal_rows: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(ARGUMENTS, folder)
    return content(folder / "runs" / NAME)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_in_every_phase_ends_as_if_it_had_not_been(
    tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    run = tmp_path / "runs" / NAME
    log = run / "output.log"
    steps, first = run / "checkpoints", run / "rollouts" / "train-000001.jsonl.gz"

    def said() -> str:
        return (tmp_path / "said.txt").read_text(encoding="utf-8")

    def left() -> str:
        """Where the run that was killed is to go on from."""
        whole = [int(path.name) for path in steps.glob("*") if path.name.isdigit()]
        return f"step {max(whole)}" if whole else "the start: no checkpoint yet"

    phases: list[Callable[[], bool]] = [
        lambda: (run / ".model.partial").is_dir() or (run / "model").is_dir(),
        lambda: log.is_file() and "warm-up   20/40" in log.read_text(encoding="utf-8"),
        # While the first checkpoint is written; a busy machine may show it when it stands already.
        lambda: (steps / ".000001.partial" / "model").is_dir() or (steps / "000001").is_dir(),
        lambda: "resumed   from step" in said() and first.is_file(),  # in the first update
        (steps / "000002").is_dir,  # in the third rollout, or shortly before
    ]
    arguments, expected = ARGUMENTS, []
    for reached in phases:
        kill_when(reached, arguments, tmp_path)
        arguments = RESUME
        expected.append(left())
    finish(RESUME, tmp_path)
    assert re.findall(r"^resumed   from (.+)$", said(), re.MULTILINE) == expected
    assert expected[0] == "the start: no checkpoint yet"
    assert len(set(expected)) >= 3
    assert differences(undisturbed, content(run)) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system with room for a model, a reference and one checkpoint."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=26m", "tmpfs", mounted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", mounted], check=True)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_full_disk_costs_nothing_but_time(small_disk: Path, undisturbed: dict[str, str]) -> None:
    said = finish(ARGUMENTS, small_disk, status=2)
    assert "error: the checkpoint cannot be written" in said
    assert re.search(r"found  .*; \d\.\d MB are free", said)
    assert "Traceback" not in said
    assert f"go on with: rlcore run --resume runs/{NAME}" in said
    subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)
    finish(RESUME, small_disk)
    assert differences(undisturbed, content(small_disk / "runs" / NAME)) == []
