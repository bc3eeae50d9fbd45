"""Kill every write of a run between any two file operations: files stay complete, and the run can resume."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fault_points import killed_at
from killed_runs import content, differences, records, timeless
from rlcore.models.folder import build
from rlcore.plugins.registry import Registry
from rlcore.rollouts.records import read_groups, write_groups
from rlcore.runs.directory import Asked, RunDirectory, checkpoint_to_resume, checkpoints_of, read_metrics
from rlcore.session.session import RunSession
from rlcore.trackers.jsonl import JsonlTracker
from rlcore.types import Group, Message, Segment, Task, Trajectory, media_hash

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]  # the child process only writes files


def killed_everywhere(prepare: Callable[[], object], work: Callable[[], object], *, at_least: int) -> Iterator[None]:
    """Yield after each kill: for every file operation, prepare, and kill the work before that operation."""
    for operation in count(1):
        prepare()
        if not killed_at(operation, work):
            assert operation > at_least, f"the work has only {operation - 1} file operations"
            return
        yield


IMAGE = b"\x89PNG"


def group(reward: float) -> Group:
    task = Task(id="a", messages=(Message(role="user", content="1+1?"),))
    trajectory = Trajectory(
        task_id="a",
        sibling=0,
        segments=(Segment(token_ids=(1, 2), loss_mask=(False, True), logprobs=(0.0, -0.5)),),  # type: ignore[arg-type]
        images={media_hash(IMAGE): IMAGE},
        reward=reward,
    )
    return Group(task=task, trajectories=(trajectory,))


def test_record_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "train-000001.jsonl.gz"
    old, new = [group(0.0)], [group(1.0)]
    for _ in killed_everywhere(lambda: write_groups(path, old), lambda: write_groups(path, new), at_least=2):
        assert list(read_groups(path)) in (old, new)
    assert list(read_groups(path)) == new
    assert sorted(file.name for file in tmp_path.iterdir()) == ["media", path.name]


def test_metrics_line_is_appended_atomically(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"

    def one_line() -> None:
        path.unlink(missing_ok=True)
        JsonlTracker(None, tmp_path).log(1, {"reward/mean": 0.5})

    for _ in killed_everywhere(one_line, lambda: JsonlTracker(None, tmp_path).log(2, {"reward/mean": 1.0}), at_least=1):
        assert timeless(path) == [{"step": 1, "reward/mean": 0.5}]
    assert [line["step"] for line in timeless(path)] == [1, 2]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSession:
    monkeypatch.chdir(tmp_path)
    values = {
        "name": "mine",
        "model": {"path": "builtin:tiny-qwen2"},
        "environment": {"id": "gsm8k-tools"},
        "reward": [{"id": "math-numeric-equal"}],
    }
    return RunSession.create(values)


def test_run_directory_is_created_atomically(plan: RunSession) -> None:
    def create() -> RunDirectory:
        return RunDirectory.create(plan.resolved, Asked())

    def fresh() -> None:
        shutil.rmtree("runs", ignore_errors=True)

    for _ in killed_everywhere(fresh, create, at_least=8):
        if not Path("runs/mine").exists():
            create().close()
        directory = RunDirectory.open(Path("runs/mine"))
        assert directory.is_blank
        found = directory.resume(plan.resolved, Asked(), None)
        assert (found.changed, bool(found.superseded), found.gap) == ([], False, None)
        directory.close()


BUILDER = """
import json

def make(folder, texts, seed, config):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(json.dumps({"seed": seed, "texts": sorted(texts)}), encoding="utf-8")
"""


def test_model_folder_is_built_atomically(tmp_path: Path) -> None:
    (tmp_path / "builder.py").write_text(BUILDER, encoding="utf-8")
    folder, registry, id = tmp_path / "model", Registry(), f"{tmp_path / 'builder.py'}:make"
    registry.load("model", id)

    def make() -> None:
        build(registry, id, folder, ["one and two"], 7, None)

    make()
    expected = content(folder)
    for _ in killed_everywhere(lambda: shutil.rmtree(folder), make, at_least=5):
        make()
        assert differences(expected, content(folder)) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["builder.py", "model"]


def earlier(plan: RunSession) -> None:
    """A run that was killed in step 7, with checkpoints, records and a torn line."""
    shutil.rmtree("runs", ignore_errors=True)
    directory = RunDirectory.create(plan.resolved, Asked())
    for step in (2, 4, 6):
        (directory.checkpoints / f"{step:06d}").mkdir()
    lines = [json.dumps({"step": step, "reward/mean": step / 100}) for step in range(1, 7)]
    directory.metrics.write_text("\n".join(lines) + '\n{"step": 7, "rew', encoding="utf-8")
    for step in range(1, 8):
        write_groups(directory.rollouts / f"train-{step:06d}.jsonl.gz", [group(float(step))])
    (directory.rollouts / ".train-000008.jsonl.gz.partial").write_text("half", encoding="utf-8")
    directory.close()


def resume(plan: RunSession, path: str) -> None:
    directory = RunDirectory.open(Path("runs/mine"))
    directory.resume(plan.resolved, Asked(), checkpoint_to_resume(Path(path))[1])
    directory.close()


@pytest.mark.parametrize("step", [2, 6])
def test_interrupted_resume_can_be_repeated(plan: RunSession, step: int) -> None:
    run = Path("runs/mine")
    earlier(plan)
    recorded = records(run)
    resume(plan, f"runs/mine/checkpoints/{step:06d}")
    expected = content(run)
    assert records(run) == recorded
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl")] == list(range(1, step + 1))
    assert len(list((run / "rollouts").iterdir())) == step
    path = f"runs/mine/checkpoints/{step:06d}"
    for number, _ in enumerate(killed_everywhere(lambda: earlier(plan), lambda: resume(plan, path), at_least=8)):
        newest = int(checkpoints_of(run)[-1].name)
        assert newest <= len(read_metrics(run / "metrics.jsonl")), "every checkpoint has its metrics"
        if number % 2:
            resume(plan, "runs/mine")
            assert len(read_metrics(run / "metrics.jsonl")) == newest
        resume(plan, path)
        assert differences(expected, content(run)) == []
        assert records(run) == recorded


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    from rlcore_trainer.policy.causal_lm import CausalLanguageModel
    from transformers import Qwen2Config, Qwen2ForCausalLM

    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=16, num_key_value_heads=1, **small))
    return CausalLanguageModel(model, tmp_path)


@pytest.mark.parametrize(("keep", "best"), [(1, 2), (1, 3), (2, 1)])
def test_checkpoint_is_saved_and_pruned_atomically(tmp_path: Path, policy: Any, keep: int, best: int) -> None:
    from rlcore_trainer.checkpoints.checkpoint import Checkpoints, Progress, write_part

    run = tmp_path / "run"

    def save(*steps: int) -> None:
        checkpoints = Checkpoints(run / "checkpoints", keep=keep)
        for step in steps:
            progress = Progress(step=step, best_step=best if best <= step else 1)
            state = {"step": step}
            write = partial(write_part, policy=policy, state=state, main=True)
            checkpoints.save(progress, state, write, collection={"batch": step}).result()

    def two() -> None:
        shutil.rmtree(run, ignore_errors=True)
        save(1, 2)

    two()
    save(3)
    after_third = content(run)
    save(4)
    expected = content(run)
    for number, _ in enumerate(killed_everywhere(two, lambda: save(3), at_least=10)):
        last = checkpoints_of(run)[-1]
        progress, state, carried = Checkpoints(run / "checkpoints", keep=keep).resume(last)
        assert carried == {"batch": progress.step}
        assert progress.step == state["step"] == int(last.name) >= 2
        assert not list((run / "checkpoints").glob(".*"))
        if progress.step == 3:
            assert differences(after_third, content(run)) == []
        if number % 3 == 0:
            save(*range(progress.step + 1, 5))
            assert differences(expected, content(run)) == []
