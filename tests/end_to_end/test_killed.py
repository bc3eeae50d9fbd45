"""Runs that are killed in every phase or run out of disk space match the uninterrupted run after resuming."""

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
    """Start a new process, so that hash orders differ."""
    folder.mkdir(exist_ok=True)
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        command = [sys.executable, "-m", "rlcore", *arguments]
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, text=True)


def finish(arguments: tuple[str, ...], folder: Path, *, status: int = 0) -> str:
    process = start(arguments, folder)
    output = folder / "output.txt"
    assert process.wait(timeout=300) == status, output.read_text("utf-8")[-3000:]
    return output.read_text("utf-8")


def kill_when(reached: Callable[[], bool], arguments: tuple[str, ...], folder: Path) -> None:
    process = start(arguments, folder)
    while not reached():
        assert process.poll() is None, (folder / "output.txt").read_text("utf-8")[-3000:]
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
def test_run_killed_in_every_phase_resumes_identically(tmp_path: Path, undisturbed: dict[str, str]) -> None:
    run = tmp_path / "runs" / NAME
    log = run / "output.log"
    steps, first = run / "checkpoints", run / "rollouts" / "train-000001.jsonl.gz"

    def output() -> str:
        return (tmp_path / "output.txt").read_text(encoding="utf-8")

    def left() -> str:
        """The expected starting point of the next resume."""
        whole = [int(path.name) for path in steps.glob("*") if path.name.isdigit()]
        return f"step {max(whole)}" if whole else "the start"

    phases: list[Callable[[], bool]] = [
        lambda: (run / ".model.partial").is_dir() or (run / "model").is_dir(),
        lambda: log.is_file() and "warm-up   20/40" in log.read_text(encoding="utf-8"),
        # While the first checkpoint is written, or on a busy machine shortly after.
        lambda: (steps / ".000001.partial" / "model").is_dir() or (steps / "000001").is_dir(),
        lambda: "resumed   from step" in output() and first.is_file(),  # in the first update
        (steps / "000002").is_dir,  # in the third rollout, or shortly before
    ]
    arguments, expected = ARGUMENTS, []
    for reached in phases:
        kill_when(reached, arguments, tmp_path)
        arguments = RESUME
        expected.append(left())
    finish(RESUME, tmp_path)
    assert re.findall(r"^resumed   from (the start|step \d+)", output(), re.MULTILINE) == expected
    assert expected[0] == "the start"
    assert len(set(expected)) >= 3
    assert differences(undisturbed, content(run)) == []


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small file system of the size that a test gives."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", mounted], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a file system: {done.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", mounted], check=True)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("small_disk", "saved"), [("26m", True), ("10m", False)], indirect=["small_disk"])
def test_run_resumes_after_a_full_disk(small_disk: Path, saved: bool, undisturbed: dict[str, str]) -> None:
    """There is space for a model, a reference and one checkpoint, or none."""
    output = finish(ARGUMENTS, small_disk, status=2)
    assert bool(list((small_disk / "runs" / NAME / "checkpoints").glob("[0-9]*"))) == saved
    assert "error: " in output
    assert "checkpoint" in output
    assert re.search(r"\d\.\d MB", output)
    assert "Traceback" not in output
    assert f"rlcore run --resume runs/{NAME}" in output
    subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)
    output = finish(RESUME, small_disk)
    assert ("resumed   from the start" in output) != saved
    assert differences(undisturbed, content(small_disk / "runs" / NAME)) == []
