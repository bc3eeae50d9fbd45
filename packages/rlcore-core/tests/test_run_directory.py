"""The folder of a run: whole or not there, locked, and never reused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rlcore.cli.layering import gather
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.runs.directory import (
    Asked,
    RunDirectory,
    best_checkpoint,
    checkpoint_to_resume,
    config_layer,
    last_checkpoint,
    read_metrics,
    run_of,
)
from rlcore.runs.metrics import STEPS_COVERED, metrics_gap, metrics_lines
from rlcore.runs.surroundings import changed_versions, surroundings
from rlcore.trackers.jsonl import JsonlTracker


def resolved(*overrides: str) -> Resolved:
    registry = Registry()
    layered = gather(registry, plugin="toy", overrides=overrides)
    return resolve(layered.layers, registry, recipe=layered.recipe)


def test_new_directory_contains_request_and_configuration(toy: Any) -> None:
    asked = Asked(recipe="toy/default", overrides=("seed=3", "judge.api_key=sk-1"), argv=("rlcore", "x.api_key=sk-1"))
    directory = RunDirectory.create(resolved("seed=3"), asked)
    names = {path.name for path in directory.path.iterdir()}
    assert names == {
        *("asked.toml", "config.toml", "environment.json", "output.log", ".lock", "rollouts", "media", "checkpoints")
    }
    assert directory.path.name.split("-")[3:4] == ["toy"]
    config = (directory.path / "config.toml").read_text()
    assert "seed = 3             # command line: seed=3\n" in config
    assert "max_turns = 2      # recipe toy/default:8\n" in config
    environment = json.loads((directory.path / "environment.json").read_text())
    assert environment["plugins"]["toy"] == "toy-rl 0.3"
    everything = "".join(path.read_text() for path in directory.path.iterdir() if path.is_file())
    assert "sk-1" not in everything
    assert [path.name for path in Path("runs").iterdir()] == [directory.path.name]
    directory.close()


def test_existing_name_is_rejected_and_nothing_is_written(toy: Any) -> None:
    RunDirectory.create(resolved("name=mine"), Asked()).close()
    before = sorted(Path("runs").rglob("*"))
    with pytest.raises(UserError) as raised:
        RunDirectory.create(resolved("name=mine"), Asked())
    assert "--resume" in (raised.value.fix or "")
    assert sorted(Path("runs").rglob("*")) == before
    for name in ("../up", "a/b", ".."):
        with pytest.raises(UserError) as raised:
            RunDirectory.create(resolved(f"name={name}"), Asked())
        assert repr(name) in raised.value.message


def test_failed_creation_leaves_no_directory(toy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        RunDirectory.create(resolved(), Asked())
    assert list(Path("runs").iterdir()) == []


@pytest.mark.parametrize("later", ["nothing", "a step", "a checkpoint"])
def test_configuration_is_restored_until_it_has_been_used(toy: Any, later: str) -> None:
    directory = RunDirectory.create(resolved("name=mine"), Asked())
    directory.put_back()
    before = (directory.path / "config.toml").read_text(encoding="utf-8")
    (directory.checkpoints / "000002").mkdir()
    directory.metrics.write_text('{"step": 2}\n', encoding="utf-8")
    directory.resume(resolved("name=mine", "trainer.steps=9"), Asked(), directory.checkpoints / "000002")
    after = (directory.path / "config.toml").read_text(encoding="utf-8")
    if later == "a step":
        directory.metrics.write_text('{"step": 2}\n{"step": 3}\n', encoding="utf-8")
    elif later == "a checkpoint":
        (directory.checkpoints / "000003").mkdir()
    directory.put_back()
    directory.close()
    assert after != before
    assert (directory.path / "config.toml").read_text(encoding="utf-8") == (before if later == "nothing" else after)


def test_second_process_gets_the_id_of_the_first(toy: Any) -> None:
    directory = RunDirectory.create(resolved("name=mine"), Asked())
    code = (
        "from rlcore.runs.directory import RunDirectory; from pathlib import Path; RunDirectory.open(Path('runs/mine'))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=toy.environment(), capture_output=True, text=True)
    assert f"found  process {os.getpid()}" in done.stderr
    directory.close()
    done = subprocess.run([sys.executable, "-c", code], env=toy.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_resume_truncates_metrics_and_sets_later_checkpoints_aside(toy: Any) -> None:
    directory = RunDirectory.create(resolved("name=mine"), Asked())
    for step in (10, 20, 30):
        (directory.checkpoints / f"{step:06d}" / "model").mkdir(parents=True)
    (directory.path / "sheets").mkdir()  # of an earlier version
    (directory.path / "sheets" / "evaluation-000020.html").touch()
    lines = [json.dumps({"step": step, "reward/mean": 0.1}) for step in (5, 10, 15, 20, 25)]
    directory.metrics.write_text("\n".join(lines) + '\n{"step": 26, "rew')
    run, checkpoint = checkpoint_to_resume(Path("runs/mine/checkpoints/000010"))
    assert (run, checkpoint) == (Path("runs/mine"), Path("runs/mine/checkpoints/000010"))
    assert checkpoint_to_resume(Path("runs/mine"))[1] == Path("runs/mine/checkpoints/000030")
    found = directory.resume(resolved("trainer.steps=99"), Asked(overrides=("trainer.steps=99",)), checkpoint)
    assert found.changed == []
    assert found.gap == "no line for steps 1 to 4 and 6 to 9, 1 damaged line"
    assert str(found.superseded) == "2 checkpoints, 4 lines of metrics"
    moved = directory.path / "superseded/001-from-step-10"
    assert found.superseded.folder == moved
    assert sorted(path.name for path in (moved / "checkpoints").iterdir()) == ["000020", "000030"]
    assert (moved / "metrics.jsonl").read_text().splitlines() == [*lines[2:], '{"step": 26, "rew']
    assert [line["step"] for line in read_metrics(directory.metrics)] == [5, 10]
    assert checkpoint_to_resume(Path("runs/mine"))[1] == Path("runs/mine/checkpoints/000010")
    entry = json.loads((directory.path / "resumes.jsonl").read_text())
    assert (entry["step"], entry["superseded"]) == (10, "superseded/001-from-step-10")
    directory.close()
    layer = config_layer(Path("runs/mine"))
    assert layer.origin(("trainer", "steps")) == "command line: trainer.steps=99"
    assert layer.origin(("trainer", "learning_rate")) == "recipe toy/default:20"


@pytest.mark.parametrize(
    ("steps", "last", "gap"),
    [
        ([0, 4, 8, 10], 10, None),
        ([4, 12, 16], 16, "no line for steps 5 to 8"),
        ([4, 8], 12, "no line for steps 9 to 12"),
        ([], 3, "no line for steps 1 to 3"),
    ],
)
def test_a_line_can_describe_several_steps(steps: list[int], last: int, gap: str | None, tmp_path: Path) -> None:
    tracker = JsonlTracker(None, tmp_path)
    for step in steps:
        tracker.log(step, {"loss": 1.0, STEPS_COVERED: 2.0 if step == 10 else 4.0} if step else {"loss": 1.0})
    assert metrics_gap(metrics_lines(tmp_path / "metrics.jsonl"), last=last) == gap


@pytest.mark.parametrize("known", ["[1]", "not json", None])
def test_damaged_run_resumes_from_its_checkpoint(known: str | None, toy: Any) -> None:
    directory = RunDirectory.create(resolved("name=mine"), Asked())
    (directory.checkpoints / "000010" / "model").mkdir(parents=True)
    directory.metrics.write_text('{"step": 5}\n' + "[" * 100_000 + '\nnonsense\n{"step": 10}\n', encoding="utf-8")
    environment = directory.path / "environment.json"
    if known is None:
        environment.unlink()
    else:
        environment.write_text(known, encoding="utf-8")
    directory.rollouts.rmdir()
    found = directory.resume(resolved(), Asked(), directory.checkpoints / "000010")
    assert found.changed == []
    assert found.gap == "no line for steps 1 to 4 and 6 to 9, 2 damaged lines"
    assert [line["step"] for line in read_metrics(directory.metrics)] == [5, 10]
    assert directory.rollouts.is_dir()
    directory.close()


def test_earlier_configuration_keeps_its_values_and_origins(toy: Any) -> None:
    first = resolved("evaluation.tasks=5", "reward.exact.strict=false", "rollout.max_context_tokens=null", "name=mine")
    RunDirectory.create(first, Asked()).close()
    again = resolve([config_layer(Path("runs/mine"))], Registry())
    assert again.tree() == first.tree()
    assert again.origin(("reward", "0", "strict")) == "command line: reward.exact.strict=false"
    assert again.origin(("seed",)) == "default"


def test_best_checkpoint_has_the_best_evaluation(toy: Any) -> None:
    directory = RunDirectory.create(resolved("name=mine"), Asked())
    assert best_checkpoint(directory.path) is None
    for step in (10, 20, 30):
        (directory.checkpoints / f"{step:06d}").mkdir()
    assert best_checkpoint(directory.path) is None  # nothing was evaluated
    assert last_checkpoint(directory.path) == directory.checkpoints / "000030"
    lines = [{"step": 10, "evaluation/accuracy": 0.7}, {"step": 20, "evaluation/accuracy": 0.7}]
    lines += [{"step": 25, "evaluation/accuracy": 0.9}, {"step": 30, "evaluation/accuracy": 0.5}]
    directory.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert best_checkpoint(directory.path) == directory.checkpoints / "000020"
    (directory.checkpoints / ".000040.partial").mkdir()
    assert run_of(directory.checkpoints / ".000040.partial") is None
    assert run_of(directory.checkpoints / "000020" / "model") == (directory.path, directory.checkpoints / "000020")
    directory.close()


def test_path_without_a_run_is_rejected(toy: Any) -> None:
    Path("empty").mkdir()
    for path in ("empty", "nowhere"):
        with pytest.raises(UserError, match="not a run directory"):
            checkpoint_to_resume(Path(path))


def test_changed_versions_are_named() -> None:
    then = {"python": "3.11.1", "versions": {"torch": "2.13.0", "gone": "1"}, "plugins": {"toy": "toy-rl 0.3"}}
    now = {"python": "3.11.1", "versions": {"torch": "2.13.1"}, "plugins": {"toy": "toy-rl 0.3", "new": "n 1"}}
    assert changed_versions(then, now) == ["gone 1 → absent", "torch 2.13.0 → 2.13.1", "new absent → n 1"]


def test_changed_threads_and_instructions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    then = surroundings([])
    assert changed_versions(then, surroundings([])) == []
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert changed_versions(then, surroundings([])) == ["OMP_NUM_THREADS 1 → 2"]
    assert then["instructions"]
    changed = changed_versions({**then, "instructions": "mmx"}, then)
    assert changed == [f"instructions of the processor mmx → {then['instructions']}"]
