"""Real disks that are full, read-only or gone, and two processes: refused or survived, never corrupted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rlcore.run_directory import checkpoints_of, read_metrics

LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # the interpreter leaves half a file there without a word
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
from rlcore.cli import main
sys.exit(main())
"""
"""The command, for which every file is full at so many bytes."""


def command(toy: Any, *arguments: object, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "rlcore"] if limit is None else ["-c", LIMITED, str(limit)]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)], env=toy.environment(), capture_output=True, text=True
    )


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A file system over a folder while the block lasts; the test is skipped where it cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    done = subprocess.run(["mount", *options, folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def steps_are(run: Path, last: int) -> bool:
    return [line["step"] for line in read_metrics(run / "metrics.jsonl")] == list(range(1, last + 1))


def test_a_full_disk_ends_the_run_with_a_sentence_and_it_goes_on_when_there_is_room(toy: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "-t", "tmpfs", "-o", "size=256k", "tmpfs"):
        done = command(toy, "run", "-p", "toy", f"runs={disk}", "name=mine", "trainer.steps=40")
        assert done.returncode == 2, done.stderr
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        last = int(checkpoints_of(disk / "mine")[-1].name)
        assert last < 40
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        done = command(toy, "run", "--resume", disk / "mine")
        assert done.returncode == 0, done.stderr
        assert f"resumed   from step {last}" in done.stdout
        assert steps_are(disk / "mine", 40)


@pytest.mark.parametrize(("use", "file"), [('["jsonl"]', "metrics.jsonl"), ('["console"]', "output.log")])
def test_a_file_of_the_run_that_cannot_be_written_ends_it(toy: Any, use: str, file: str) -> None:
    arguments = ("run", "-p", "toy", "name=mine", "trainer.steps=100", f"trackers.use={use}")
    done = command(toy, *arguments, limit=6000)
    assert done.returncode == 2, done.stderr
    assert f"error: runs/mine/{file} cannot be written" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    last = int(checkpoints_of(Path("runs/mine"))[-1].name)
    done = command(toy, "run", "--resume", "runs/mine", "trackers.use=['jsonl']", f"trainer.steps={last + 2}")
    assert done.returncode == 0, done.stderr
    numbers = [line["step"] for line in read_metrics(Path("runs/mine/metrics.jsonl"))]
    assert numbers[-2:] == [last + 1, last + 2]
    assert len(numbers) == len(set(numbers))


def test_a_folder_that_may_not_be_written_to_is_refused(toy: Any) -> None:
    assert command(toy, "run", "-p", "toy", "name=mine").returncode == 0
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("runs").rglob("*"))
    with mounted(Path("runs"), "--bind", "runs"):
        subprocess.run(["mount", "-o", "remount,ro,bind", "runs"], check=True)
        for arguments in (("-p", "toy", "name=other"), ("--resume", "runs/mine", "trainer.steps=5")):
            done = command(toy, "run", *arguments)
            assert done.returncode == 2, done.stderr
            assert "Read-only file system" in done.stderr
            assert "Traceback" not in done.stderr
    assert sorted((path, path.stat().st_mtime_ns) for path in Path("runs").rglob("*")) == before


@contextmanager
def running(toy: Any, *arguments: str, pause_s: int) -> Iterator[subprocess.Popen[str]]:
    """A run that has done a step and takes its time for the next."""
    command = [sys.executable, "-m", "rlcore", "run", *arguments, f"trainer.slow_s={pause_s}", "trainer.steps=9"]
    process = subprocess.Popen(
        command, env=toy.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        assert "STEP\n" in iter(process.stdout.readline, "")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_second_process_is_refused_and_the_first_is_not_disturbed(toy: Any) -> None:
    with running(toy, "-p", "toy", "name=mine", pause_s=300) as first:
        done = command(toy, "run", "--resume", "runs/mine")
        assert done.returncode == 2
        assert "error: another process writes in runs/mine" in done.stderr
        assert f"found  process {first.pid}" in done.stderr
        assert f"kill -INT {first.pid}" in done.stderr
        assert not Path("runs/mine/resumes.jsonl").exists()
        assert command(toy, "run", "--resume", "runs/mine", "--dry-run").returncode == 0
    done = command(toy, "run", "--resume", "runs/mine", "trainer.slow_s=0")
    assert done.returncode == 0, done.stderr
    assert steps_are(Path("runs/mine"), 9)


def test_a_run_directory_that_is_deleted_meanwhile_is_not_brought_back(toy: Any) -> None:
    with running(toy, "-p", "toy", "name=mine", pause_s=1) as process:
        shutil.rmtree("runs/mine")
        _, said = process.communicate(timeout=60)
        assert process.returncode == 2, said
        assert "cannot be written" in said
        assert "its folder is gone" in said
        assert "Traceback" not in said
    assert not Path("runs/mine").exists()


def test_a_damaged_checkpoint_is_refused_before_anything_loads(rlcore: Callable[..., Any]) -> None:
    assert rlcore("run", "-p", "toy", "name=mine").status == 0
    checkpoint = Path("runs/mine/checkpoints/000003")
    (checkpoint / "trainer.json").write_text('{"files": {"optimiser.pt": 7}}', encoding="utf-8")
    done = rlcore("run", "--resume", "runs/mine", "trainer.steps=4")
    assert done.status == 2
    assert "this checkpoint is damaged" in done.err
    assert "optimiser.pt is missing" in done.err
    assert not Path("runs/mine/resumes.jsonl").exists()
    assert rlcore("run", "--resume", "runs/mine/checkpoints/000002", "trainer.steps=3").status == 0
