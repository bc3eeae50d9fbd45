"""A resumed run loses no record, starts only from a complete checkpoint, and rejects keys that it cannot change."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlcore.runs.metrics import read_metrics

Call = Callable[..., Any]
LAST = 4
NUMBERS = count()


def records(run: Path) -> Counter[bytes]:
    """Every file of rollouts and every line of metrics in a run."""
    files = [hashlib.sha256(path.read_bytes()).digest() for path in run.rglob("*.jsonl.gz")]
    lines = [line for path in run.rglob("metrics.jsonl*") for line in path.read_bytes().split(b"\n") if line]
    return Counter([*files, *lines])


def contents(run: Path) -> dict[str, bytes | None]:
    paths = [path for path in run.rglob("*") if path.name != ".lock"]
    return {str(path.relative_to(run)): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture
def trained(rlcore: Call) -> Callable[[], Path]:
    """Makes copies of a run of four steps. Each copy has different records, so none can be recomputed."""
    done = rlcore("run", "-p", "toy", "name=origin", f"trainer.steps={LAST}")
    assert done.status == 0, done.err

    def copy() -> Path:
        run = Path(f"runs/{next(NUMBERS)}")
        shutil.copytree("runs/origin", run, symlinks=True)
        for path in (run / "rollouts").iterdir():
            path.write_bytes(str(path).encode())
        lines = [json.dumps({**row, "run": str(run)}) for row in read_metrics(run / "metrics.jsonl")]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return run

    return copy


STEPS = st.integers(1, LAST)
TARGETS = st.lists(st.none() | STEPS, min_size=1, max_size=3)
"""Checkpoints to resume from, one after the other; None for the run itself."""
DAMAGES = st.tuples(STEPS, st.sampled_from(["state", "model/config.json", "manifest.json"]))


@pytest.mark.slow
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(gone=st.sets(STEPS), damage=st.none() | DAMAGES, torn=st.none() | STEPS, targets=TARGETS)
def test_records_survive_every_resume(
    trained: Callable[[], Path],
    rlcore: Call,
    gone: set[int],
    damage: tuple[int, str] | None,
    torn: int | None,
    targets: list[int | None],
) -> None:
    run = trained()
    folder = run / "checkpoints"
    for step in gone:
        shutil.rmtree(folder / f"{step:06d}")
    if damage is not None and damage[0] not in gone:
        file = folder / f"{damage[0]:06d}" / damage[1]
        file.write_bytes(file.read_bytes()[:-1])
    if torn is not None:
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        lines[torn - 1] = lines[torn - 1][:9]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for target in targets:
        before, files = records(run), contents(run)
        there = {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
        used = max(there, default=None) if target is None else target
        done = rlcore("run", "--resume", run if target is None else folder / f"{target:06d}")
        if used is not None and used not in there:
            assert (done.status, contents(run)) == (2, files)
            continue
        if damage is not None and used == damage[0]:
            assert (done.status, contents(run)) == (2, files)
            assert damage[1] in done.err
            continue
        assert done.status == 0, done.err
        assert records(run) >= before
        moved = [line for line in done.out.splitlines() if line.startswith("moved ")]
        assert len(moved) == 1 if used != LAST else len(moved) <= 1
        assert all(str(run / "superseded") in line for line in moved)
        if torn is not None and used is not None and torn <= used:
            assert "gap       metrics.jsonl has " in done.out
        damage = damage if damage is not None and damage[0] <= (used or 0) else None  # a later one was moved
        torn = torn if torn is not None and torn <= (used or 0) else None


@pytest.mark.parametrize("folder", ["checkpoints", "checkpoints/000004"])
def test_run_without_its_checkpoints_starts_again_and_keeps_its_records(
    trained: Callable[[], Path], rlcore: Call, folder: str
) -> None:
    run = trained()
    before = records(run)
    shutil.rmtree(run / folder)
    done = rlcore("run", "--resume", run)
    assert done.status == 0, done.err
    assert ("resumed   from the start" in done.out) == (folder == "checkpoints")
    assert records(run) > before


@pytest.mark.parametrize(
    "override",
    [
        "seed=5",
        "name=other",
        "runs=elsewhere",
        "layout=stamped",
        "model.builder.layers=3",
        "model.dtype=bfloat16",
        "model.path=nowhere",
        "trainer.id=another.py:Trainer",
        "warmup.steps=9",
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_key_that_only_affects_the_start_is_rejected(
    trained: Callable[[], Path], rlcore: Call, override: str, dry: list[str]
) -> None:
    Path("another.py").write_text(
        "import toy_rl\n"
        "class Trainer(toy_rl.Trainer):\n"
        "    Config = toy_rl.TrainerConfig\n"
        "    tables = (('algorithm', 'toy_rl:AlgorithmConfig'), ('warmup', 'toy_rl:WarmupConfig'))\n",
        encoding="utf-8",
    )
    run = trained()
    before = contents(run)
    done = rlcore("run", "--resume", run, override, *dry)
    key = override.partition("=")[0]
    assert done.status == 2
    assert f"refused      {key} = " in done.err
    assert f"command line: {override}" in done.err
    assert contents(run) == before


def test_unchanged_and_changeable_keys_are_accepted(trained: Callable[[], Path], rlcore: Call) -> None:
    same = ["seed=0", "name=origin", "warmup.steps=1", "model=builtin:tiny", "model.dtype=auto", "layout=plain"]
    done = rlcore("run", "--resume", trained(), *same, "trainer.steps=6", "rollout.group_size=3", "evaluation.every=2")
    assert done.status == 0, done.err


@pytest.mark.parametrize(("weights", "status"), [(b"same", 0), (b"diff", 2)])
@pytest.mark.parametrize("removed", [False, True])
def test_moved_model_is_accepted_and_another_one_rejected(
    rlcore: Call, weights: bytes, status: int, removed: bool
) -> None:
    for name, content in (("old", b"same"), ("new", weights)):
        Path(name).mkdir()
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (Path(name) / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + content)
        for file in ("config.json", "tokenizer.json"):
            (Path(name) / file).write_text("{}", encoding="utf-8")
    assert rlcore("run", "-p", "toy", "name=mine", "model=old").status == 0
    if removed:  # then it cannot be compared
        shutil.rmtree("old")
    done = rlcore("run", "--resume", "runs/mine", "model=new", "trainer.steps=4")
    assert done.status == (0 if removed else status), done.err


def test_missing_and_damaged_lines_of_metrics_are_reported(trained: Callable[[], Path], rlcore: Call) -> None:
    run = trained()
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    (run / "metrics.jsonl").write_bytes(lines[0] + b'\n{"step": 2, "rew\n' + lines[3] + b"\n")
    done = rlcore("doctor", run)
    assert done.status == 0
    assert "no line for steps 2 to 3, 1 damaged line" in done.out
    done = rlcore("run", "--resume", run, "trainer.steps=5")
    assert "gap       metrics.jsonl has no line for steps 2 to 3, 1 damaged line" in done.out
    (run / "metrics.jsonl").unlink()
    assert "no line for steps 1 to 5" in rlcore("doctor", run).out


def test_doctor_names_damaged_files_of_a_run(trained: Callable[[], Path], rlcore: Call) -> None:
    run = trained()
    done = rlcore("doctor", run)
    assert done.status == 0, done.out
    assert done.out.count("✓ checkpoint") == LAST
    (run / "checkpoints/000003/model/config.json").write_text("other", encoding="utf-8")
    (run / "checkpoints/000003/state").unlink()
    done = rlcore("doctor", run, "--json")
    assert done.status == 1
    (damaged,) = [row for row in json.loads(done.out) if row["status"] == "fail"]
    assert damaged["check"] == "checkpoint"
    assert "state is missing" in damaged["text"]
    assert "model/config.json" in damaged["text"]
    assert damaged["fix"] == f"rlcore run --resume {run}/checkpoints/000002"
    assert rlcore("doctor", run / "checkpoints/000003").status == 1
    assert rlcore("doctor", run / "checkpoints/000004").status == 0
    assert rlcore("run", "--resume", run / "checkpoints/000002").status == 0
    assert "superseded/001-from-step-2" in rlcore("doctor", run).out


@pytest.mark.parametrize("name", ["model", "checkpoints/reference"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "manifest.json"])
def test_damaged_model_outside_of_the_checkpoints_is_found(
    trained: Callable[[], Path], rlcore: Call, name: str, file: str
) -> None:
    run = trained()
    if name != "model":
        shutil.copytree(run / "model", run / name)
    assert rlcore("doctor", run).status == 0
    content = bytearray((run / name / file).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name / file).write_bytes(content)
    assert f"✗ model      {run / name}" in rlcore("doctor", run).out
    before = contents(run)
    done = rlcore("run", "--resume", run)
    assert (done.status, contents(run)) == (2, before)
    assert str(run / name) in done.err
    assert file in done.err


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "environment.json", "output.log", "checkpoints/000004/state", "checkpoints/000004/manifest.json"],
)
def test_pipe_in_a_run_is_rejected_without_reading_it(trained: Callable[[], Path], rlcore: Call, name: str) -> None:
    run = trained()
    (run / name).unlink()
    os.mkfifo(run / name)
    for arguments in (("run", "--resume", run / "checkpoints/000004"), ("doctor", run), ("eval", run)):
        done = rlcore(*arguments)
        assert done.status in (1, 2)
        assert name.rpartition("/")[2] in done.err + done.out


@pytest.mark.parametrize("arguments", [["nowhere"], ["runs/origin", "-p", "toy"]])
def test_doctor_rejects_what_is_not_a_run(trained: Callable[[], Path], rlcore: Call, arguments: list[str]) -> None:
    assert rlcore("doctor", *arguments).status == 2


def test_evaluation_of_a_damaged_checkpoint_is_rejected(trained: Callable[[], Path], rlcore: Call) -> None:
    run = trained()
    file = run / "checkpoints/000004/model/model.safetensors"
    file.write_bytes(file.read_bytes()[::-1])
    done = rlcore("eval", run / "checkpoints/000004")
    assert done.status == 2
    assert "model/model.safetensors does not match its checksum" in done.err
    assert rlcore("eval", run / "checkpoints/000003").status == 0
