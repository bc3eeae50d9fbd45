"""The samples and numbers of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rl_plugin_visual_cot.config import DataConfig
from rl_plugin_visual_cot.dataset import VisualCotData
from rl_plugin_visual_cot.observer import evaluated
from rl_plugin_visual_cot.prompts import answered
from rl_plugin_visual_cot.samples import lines_of, numbers_of, samples_of
from rlcore import Boundary, Failure, Group, Stop, Task
from rlcore.rollouts.records import read_groups
from rlcore.runs.directory import Asked, RunDirectory
from rlcore.session.session import RunSession
from rlcore.testing import make_trajectory
from rlcore.types import media_hash

TASKS = VisualCotData(DataConfig(held_out=7)).tasks("evaluation")
FIELDS = [
    "image_id",
    "instruction",
    "gt_answer",
    "prediction_raw",
    "pred_think",
    "pred_answer",
    "is_correct",
    "is_consist",
]


def answer(task: Task, text: str, **changes: Any) -> Group:
    made = make_trajectory(*task.messages, text)
    images = {media_hash(image): image for image in task.images}
    return Group(task=task, trajectories=(made.replace(images=images, **changes),))


def right(task: Task) -> str:
    return answered(str(task.fields["reasoning"]), str(task.fields["answer"])).text


def groups() -> list[Group]:
    """Four correct answers, one of them inconsistent, a truncated one, a wrong one, and a failure."""
    first, second, third, fourth, fifth, sixth, seventh = TASKS
    expected = str(fourth.fields["answer"])
    return [
        *(answer(task, right(task)) for task in (first, second, third)),
        answer(fourth, answered("Conclusion: a <script>.", expected).text),
        answer(fifth, "<think>It is", stop=Stop.LENGTH),
        answer(sixth, answered("Conclusion: a whale.", "Whale").text),
        answer(seventh, "", failure=Failure(boundary=Boundary.ENGINE, message="lost")),
    ]


def test_numbers_count_every_sample_once() -> None:
    numbers = numbers_of(list(samples_of(groups())))
    assert (numbers.samples, numbers.failed) == (7, 1)
    assert numbers.accuracy == pytest.approx(4 / 6)
    assert numbers.interval[0] < 4 / 6 < numbers.interval[1]
    assert (numbers.consistency, numbers.truncated, numbers.unanswered) == pytest.approx((3 / 4, 1 / 6, 1 / 6))
    assert sum(count for _, count in numbers.classes.values()) == 6
    assert sum(value * count for value, count in numbers.classes.values()) == pytest.approx(4)


def test_lines_have_the_words_of_the_original_program() -> None:
    lines = lines_of(numbers_of(list(samples_of(groups()))))
    assert "Evaluation accuracy: 0.6667" in lines
    assert "Consistent samples percentage: 0.7500" in lines


def test_nothing_scored_has_no_accuracy() -> None:
    numbers = numbers_of(list(samples_of(groups()[-1:])))
    assert (numbers.accuracy, numbers.consistency) == (None, None)
    assert "Evaluation accuracy: none" in lines_of(numbers)


def session(folder: Path, *, training: bool) -> RunSession:
    values = {
        "model": {"path": "builtin:tiny-qwen2.5-vl"},
        "environment": {"id": "visual-cot"},
        "reward": [{"id": "visual-cot"}],
        "runs": str(folder),
        "name": "GRPO",
    }
    run = RunSession.create(values, purpose="run" if training else "evaluation")
    if not training:
        return run
    return RunSession(run.plan, run.registry, directory=RunDirectory.create(run.resolved, Asked()))


def test_evaluations_outside_of_training_get_a_run_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = session(tmp_path / "logs", training=False)
    evaluated(run, groups())
    evaluated(run, groups())
    first, second = sorted((tmp_path / "logs").iterdir())
    assert first.name.endswith("_Evaluator")
    for folder in (first, second):
        parts = {path.name for path in folder.iterdir()}
        assert parts == {"backup", "ckpt", "result", "tensorboard", "output.log"}
        assert (folder / "backup" / "config.toml").is_file()
        assert {path.name for path in (folder / "backup").iterdir()} == {
            "config.toml",
            "environment.json",
            "command.txt",
        }
        rows = json.loads((folder / "result" / "eval_samples_Evaluator.json").read_text(encoding="utf-8"))
        assert [row["image_id"] for row in rows] == [task.fields["image_id"] for task in TASKS]
        assert all(list(row) == FIELDS for row in rows)
        assert [row["is_correct"] for row in rows] == [True] * 4 + [False] * 2 + [None]
        stored = list(read_groups(folder / "result" / "eval_samples_Evaluator.jsonl.gz"))
        assert [group.task.id for group in stored] == [group.task.id for group in groups()]
        assert all(one.images for group in stored for one in group.trajectories)
        log = (folder / "output.log").read_text(encoding="utf-8").splitlines()
        assert [line.split(", ", 3)[1:] for line in log if "Evaluation accuracy" in line] == [
            ["Evaluator", "INFO: Evaluation accuracy: 0.6667"]
        ]
    assert "Saved 7 evaluation samples to " in capsys.readouterr().out


def test_evaluations_of_a_training_run_are_in_its_directory(tmp_path: Path) -> None:
    metrics = evaluated(session(tmp_path, training=True), groups())
    rows = json.loads((tmp_path / "GRPO" / "result" / "eval_samples_GRPO.json").read_text(encoding="utf-8"))
    assert len(rows) == 7
    assert metrics["answers/consistent"] == 0.75
