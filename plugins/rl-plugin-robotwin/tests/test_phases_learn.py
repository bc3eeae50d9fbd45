"""The phases learn what they claim. The proof tests write their tables into docs/results."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from finished_runs import commit, metrics, succeeded

pytest.importorskip("rl_plugin_world_model", reason="the extra train is not installed")

import numpy as np
import rlcore
import rlcore.errors
import torch
from rl_plugin_world_model.journal import missing

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs/results"
SMALL = {"model.builder.channels": 16, "model.builder.memory": 48, "model.builder.codes": 16}
QUIET = {"trainer.video_every": 0, "trainer.sample_every": 0, "trackers.use": ["jsonl"], "checkpoint.every": 0}
FAST = {"trainer.num_envs": 4, "trainer.learning_rate": 3e-3, "trainer.passes": 4}
EXPLORER = {"trainer.explorer_learning_rate": 3e-3}
ELSEWHERE = """
import os
from pathlib import Path
from rl_plugin_world_model.flat_arm import FlatArm


class Elsewhere(FlatArm):
    action = "control"

    def step(self, action):
        with Path(__file__).with_name("processes").open("a") as file:
            print(os.getpid(), file=file)
        return super().step(action)
"""

FAILING = """
from rl_plugin_world_model.flat_arm import FlatArm


class Failing(FlatArm):
    action = "control"

    def reset(self, *, seed=None, options=None):
        self._fails = seed % 4 == 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self._fails:
            raise RuntimeError("a motor is hot")
        return super().step(action)
"""


def run(folder: Path, phase: str, name: str, *, arena: str = "toy-", **settings: Any) -> list[dict[str, float]]:
    """Run a phase, and return the logged metrics of its steps."""
    values = {**SMALL, **QUIET, **FAST, "runs": str(folder), "name": name, **settings}
    found = rlcore.train("robotwin", recipe=f"{arena}{phase}", **values)
    return metrics(found.path)


def last(rows: list[dict[str, float]], name: str, count: int = 1) -> float:
    """Return the mean of the last values of a metric."""
    values = [row[name] for row in rows if name in row][-count:]
    return sum(values) / len(values)


@pytest.mark.long
def test_a_teacher_of_another_size_or_a_damaged_one_is_refused(tmp_path):
    short = {"trainer.episodes": 4, "trainer.steps_per_episode": 3}
    run(tmp_path, "teacher", "t", **short)
    teacher = {"trainer.teacher": str(tmp_path / "t/checkpoint-4")}
    with pytest.raises(rlcore.errors.UserError) as caught:
        run(tmp_path, "student", "s", **short, **teacher, **{"model.builder.memory": 32})
    assert "model.builder.memory=32, but 48" in str(caught.value)
    assert not (tmp_path / "s").exists()
    model = tmp_path / "t/checkpoints/000004/model.pt"
    whole = model.read_bytes()

    def refused(text: str) -> None:
        with pytest.raises(rlcore.errors.UserError, match=text) as caught:
            run(tmp_path, "student", "s", **short, **teacher)
        assert "trainer.teacher" in str(caught.value.where)
        assert "checkpoint" in str(caught.value.fix)

    model.write_bytes(whole[:1000])
    refused("model.pt has 1,000 bytes")
    (model.parent / "manifest.json").unlink()
    refused("damaged")
    model.write_text("hello")
    refused("damaged")
    model.write_bytes(whole)
    contents = torch.load(model, weights_only=True)
    next(iter(contents["world_model"].values())).fill_(math.nan)
    torch.save(contents, model)
    refused("NaN or infinity in")


@pytest.mark.long
def test_all_three_phases_run_and_the_world_model_learns(tmp_path):
    outputs = {"trainer.video_every": 24, "trainer.sample_every": 24, "trainer.steps_per_episode": 25}
    teacher = run(tmp_path, "teacher", "t", **{"trainer.episodes": 24, **outputs})
    loss = last(teacher, "world_model/held_out_loss")
    assert loss < 0.95 * last(teacher, "world_model/held_out_copy")
    assert loss < 0.95 * last(teacher, "world_model/held_out_marginal")
    folder = tmp_path / "t"
    assert (folder / "samples/episode_000024.png").is_file()
    assert (folder / "videos/episode_000024.mp4").stat().st_size > 1000
    lines = [json.loads(line) for line in (folder / "episode_metrics.jsonl").read_text().splitlines()]
    assert [line["episode"] for line in lines] == [4, 8, 12, 16, 20, 24]
    wanted = {"avg_loss", "avg_acc", "episode_reward", "total_steps", "lr", "timestamp", "fps", "ranks", "phase"}
    assert wanted <= lines[0].keys()
    path = {"trainer.teacher": str(folder / "checkpoint-24")}
    settings = {"trainer.episodes": 8, "trainer.steps_per_episode": 25, **EXPLORER, **path}
    student = run(tmp_path, "student", "s", **settings)
    terms = ("memory_divergence", "wm_uncertainty", "wm_error", "action_cost", "task_success")
    assert all(f"term/{name}" in student[-1] for name in terms)
    assert student[-1]["world_model/held_out_loss"] == pytest.approx(loss, rel=0.2)
    lines = [json.loads(line) for line in (tmp_path / "s/episode_metrics.jsonl").read_text().splitlines()]
    assert lines[0]["lr"] == EXPLORER["trainer.explorer_learning_rate"]
    assert student[-1]["time/step_s"] > 0
    student_path = {"trainer.student": str(tmp_path / "s/checkpoint-8"), "trainer.warmup_steps": 100}
    adversarial = run(tmp_path, "adversarial", "a", **settings, **student_path)
    assert [row["explorer/active"] for row in adversarial[1:]] == [0, 1]
    assert {"world_model/probe", "world_model/loss", "explorer/loss/policy"} <= adversarial[-1].keys()


@pytest.mark.long
def test_the_explorer_waits_while_the_world_model_predicts_well(tmp_path):
    settings = {"trainer.episodes": 8, "trainer.steps_per_episode": 10, "trainer.warmup_steps": 0}
    waiting = run(tmp_path, "adversarial", "w", **settings, **{"trainer.collapse_error": 5})
    assert [row["explorer/active"] for row in waiting[1:]] == [0, 0]


@pytest.mark.long
def test_the_environment_of_a_phase_runs_in_another_interpreter(tmp_path):
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    settings = {"trainer.episodes": 4, "trainer.steps_per_episode": 3, "trainer.num_envs": 1, "trainer.vector": "sync"}
    other = {"environment.id": f"{tmp_path}/elsewhere.py:Elsewhere", "environment.python": sys.executable}
    run(tmp_path, "teacher", "t", **settings, **other)
    processes = {int(line) for line in (tmp_path / "processes").read_text().split()}
    assert processes
    assert os.getpid() not in processes


@pytest.mark.long
@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_lines_of_metrics_are_printed_at_the_level_info(tmp_path, capsys, level):
    settings = {"trainer.episodes": 8, "trainer.steps_per_episode": 3, "trackers.use": ["console", "jsonl"]}
    rows = run(tmp_path, "teacher", "t", **settings, **{"trainer.console_level": level})
    assert [row["step"] for row in rows] == [0, 4, 8]
    printed = capsys.readouterr().out
    for text in ("step     8", "held out"):
        assert (text in printed) == (level == "INFO")


@pytest.mark.long
def test_several_environments_leave_no_gap_in_the_metrics(tmp_path, capsys):
    settings = {"trainer.episodes": 14, "trainer.steps_per_episode": 3, "trainer.log_every": 10}
    rows = run(tmp_path, "teacher", "t", **settings, **{"checkpoint.every": 8})
    assert [row["step"] for row in rows] == [0, 8, 12, 14]
    assert [row["steps_covered"] for row in rows[1:]] == [8, 4, 2]
    capsys.readouterr()
    rlcore.train(resume=tmp_path / "t/checkpoint-8")
    assert "gap" not in capsys.readouterr().out


@pytest.mark.long
def test_warnings_of_other_processes_are_printed(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    command = [sys.executable, "-m", "rlcore", "run", "-p", "robotwin", "-r", "toy-teacher", f"runs={tmp_path}"]
    command += ["name=t", "seed=0", "trainer.episodes=4", "trainer.steps_per_episode=3", "trainer.video_every=0"]
    command += ["model.device=cpu", "strategy.id=ddp", "strategy.processes=2"]
    command += [f"environment.id={tmp_path}/failing.py:Failing"]
    done = succeeded(subprocess.run(command, capture_output=True, text=True, timeout=300))
    assert "process 1: episode 1 failed" in done.stderr
    lines = (tmp_path / "t/episode_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["ranks"] for line in lines] == [2, 2]


@pytest.mark.long
def test_a_loss_that_is_not_finite_ends_the_phase(tmp_path):
    settings = {"trainer.episodes": 8, "trainer.steps_per_episode": 5, "trainer.learning_rate": 1e25}
    with pytest.raises(rlcore.errors.DivergenceError, match="diverged"):
        run(tmp_path, "teacher", "t", **settings)


@pytest.mark.long
def test_speed_counts_the_steps_since_the_resume(tmp_path):
    little = {"trainer.passes": 1, "trainer.batch_size": 1, "trainer.held_out": 1, "trainer.evaluate_every": 1000}
    first = run(tmp_path, "teacher", "t", **{"trainer.episodes": 40, "trainer.steps_per_episode": 10, **little})
    rlcore.train(resume=tmp_path / "t", **{"trainer.episodes": 44})
    *_, resumed = (json.loads(line) for line in (tmp_path / "t/metrics.jsonl").read_text().splitlines())
    assert resumed["total_steps"] == 440
    assert resumed["fps"] < 4 * last(first, "fps")  # 11 times as many steps were made since the run began


@pytest.mark.long
def test_a_resumed_phase_equals_an_uninterrupted_one(tmp_path):
    settings = {"trainer.steps_per_episode": 10, "trainer.warmup_steps": 50, "trainer.schedule": "constant", **EXPLORER}
    run(tmp_path, "adversarial", "whole", **{"trainer.episodes": 16, **settings})
    run(tmp_path, "adversarial", "parts", **{"trainer.episodes": 8, **settings})
    rlcore.train(resume=tmp_path / "parts", **{"trainer.episodes": 16})
    one, two = (
        torch.load(tmp_path / name / "checkpoint-16/model.pt", weights_only=True) for name in ("whole", "parts")
    )
    for part in ("world_model", "explorer"):
        assert all(torch.equal(value, two[part][name]) for name, value in one[part].items())


@pytest.mark.long
@pytest.mark.parametrize("phase", ["teacher", "student", "adversarial"])
def test_two_processes_equal_one_with_their_environments(tmp_path, phase):
    common = ["-p", "robotwin", "-r", f"toy-{phase}", "trainer.episodes=8", "trainer.steps_per_episode=8"]
    common += ["model.device=cpu", f"runs={tmp_path}", "trainer.vector=sync", "trainer.video_every=0"]
    common += ["trainer.schedule=linear"]
    if phase == "student":
        run(tmp_path, "teacher", "t", **{"trainer.episodes": 4, "trainer.steps_per_episode": 4})
        common += [f"trainer.teacher={tmp_path}/t/checkpoint-4"]
    else:
        common += ["model.builder.channels=8"]
    if phase == "adversarial":
        common += ["trainer.warmup_steps=20"]
    command = [sys.executable, "-m", "rlcore", "run", *common]
    subprocess.run([*command, "trainer.num_envs=2", "name=one"], check=True, timeout=300)
    parallel = ["trainer.num_envs=1", "name=two", "strategy.id=ddp", "strategy.processes=2"]
    subprocess.run([*command, *parallel], check=True, timeout=300)
    one, two = (torch.load(tmp_path / name / "checkpoint-8/model.pt", weights_only=True) for name in ("one", "two"))
    for part in sorted({"world_model", "explorer"} & one.keys()):
        for name, value in one[part].items():
            assert torch.allclose(value.float(), two[part][name].float(), atol=2e-4), f"{part}.{name}"
    for file, steps in (("episode_metrics.jsonl", "episode"), ("metrics.jsonl", "step")):
        lines = [
            [json.loads(line) for line in (tmp_path / name / file).read_text().splitlines()] for name in ("one", "two")
        ]
        assert [line[steps] for line in lines[0]] == [line[steps] for line in lines[1]]
        for before, after in zip(*lines, strict=True):
            others = {"phase", "time", "time/step_s", "timestamp", "fps", "ranks", "reward_terms"}
            for name in before.keys() - others:  # sums over processes
                assert before[name] == pytest.approx(after[name], rel=1e-2, abs=1e-3), (name, before[steps])
            if steps == "episode":  # the schedule advances once a step
                assert (before["lr"], before["total_steps"]) == (after["lr"], after["total_steps"])
                assert before["total_steps"] == 8 * before["episode"]


@pytest.mark.long
def test_a_failed_prediction_leaves_a_marked_panel_in_the_outputs(tmp_path, monkeypatch):
    from PIL import Image
    from rl_plugin_world_model import trainer

    def failing(*arguments: Any, **options: Any) -> Any:
        if options.get("pictures"):
            raise torch.OutOfMemoryError("too little memory")
        return predictions(*arguments, **options)

    predictions = trainer.predictions
    monkeypatch.setattr(trainer, "predictions", failing)
    outputs = {"trainer.video_every": 4, "trainer.sample_every": 4}
    run(tmp_path, "teacher", "t", **{"trainer.episodes": 4, "trainer.steps_per_episode": 3, **outputs})
    with Image.open(tmp_path / "t/samples/episode_000004.png") as image:
        rows = np.asarray(image)
    assert np.array_equal(rows[-160:, -160:], missing(160, 160))  # below the titles
    assert (tmp_path / "t/videos/episode_000004.mp4").stat().st_size > 1000
    assert "no prediction for episode 0: too little memory" in (tmp_path / "t/phase.log").read_text()


@pytest.mark.long
def test_another_division_of_the_environments_resumes_a_run(tmp_path, capsys):
    settings = {"trainer.episodes": 4, "trainer.steps_per_episode": 3, "trainer.num_envs": 2}
    run(tmp_path, "teacher", "t", **settings)
    command = [sys.executable, "-m", "rlcore", "robotwin", "train", "teacher", "--resume", str(tmp_path / "t")]
    done = subprocess.run([*command, "1", "1", "--num_episodes", "8"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "2 environments" in done.stderr
    succeeded(subprocess.run([*command, "2", "1", "--num_episodes", "8"], capture_output=True, text=True, timeout=300))
    lines = [json.loads(line) for line in (tmp_path / "t/episode_metrics.jsonl").read_text().splitlines()]
    assert [(line["episode"], line["ranks"]) for line in lines] == [(2, 1), (4, 1), (6, 2), (8, 2)]


@pytest.mark.proof
@pytest.mark.timeout(14400)
@pytest.mark.parametrize(
    ("arena", "page", "where"),
    [("toy-", "robotwin-phases-flat", "on the flat arm"), ("", "robotwin-phases", "in the SAPIEN scene")],
    ids=["flat arm", "scene"],
)
def test_the_phases_learn_on_three_seeds(tmp_path: Path, arena: str, page: str, where: str) -> None:
    if not arena:
        pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")
    rows = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        length = {"arena": arena, "trainer.episodes": EPISODES, "seed": seed}
        teacher = run(folder, "teacher", "t", **length)
        path = {"trainer.teacher": str(folder / f"t/checkpoint-{EPISODES}")}
        student = run(folder, "student", "s", **length, **EXPLORER, **path)
        against = {**length, **EXPLORER, "trainer.probe": 32}
        active = run(folder, "adversarial", "a", **against, **{"trainer.warmup_steps": 1000})
        passive = run(folder, "adversarial", "r", **against, **{"trainer.warmup_steps": 10**6})
        steps = last(passive, "total_steps") / EPISODES
        assert steps == 50  # the environment does not end episodes earlier
        rows.append(
            {
                "seed": seed,
                "loss": last(teacher, "world_model/held_out_loss"),
                "copy": last(teacher, "world_model/held_out_copy"),
                "marginal": last(teacher, "world_model/held_out_marginal"),
                "random coverage": last(passive, "coverage", 15),
                "student coverage": last(student, "coverage", 15),
                "adversary coverage": last(active, "coverage", 15),
                "random probe": last(passive, "world_model/probe"),
                "adversary probe": last(active, "world_model/probe"),
            }
        )
    write_page(RESULTS / f"{page}.md", where, rows, steps=steps)
    for row in rows:
        assert row["loss"] < min(row["copy"], row["marginal"])
        assert row["student coverage"] > row["random coverage"]
        assert row["adversary coverage"] > row["random coverage"]
        assert row["adversary probe"] < row["random probe"]


def write_page(path: Path, where: str, rows: list[dict[str, float]], steps: float) -> None:
    names = list(rows[0])
    table = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    table += ["| " + " | ".join(f"{row[name]:.4g}" for name in names) + " |" for row in rows]
    values = {"commit": commit(), "cores": os.cpu_count(), "episodes": EPISODES}
    head = PAGE.format(where=where, steps=steps, **values)
    path.write_text(head + "\n".join(table) + "\n", encoding="utf-8")


EPISODES = 240
PAGE = """# robotwin: the three phases {where}

Written by
`uv run pytest -m proof plugins/rl-plugin-robotwin/tests/test_phases_learn.py`
at commit {commit}, on {cores} cores. Each run has {episodes} episodes of {steps:g} steps in four environments.

- `loss`, `copy` and `marginal` are errors of the next frame on held-out episodes, in nats per patch: of the world
  model of phase 1, of copying the last frame, and of the frequencies of each position.
- Coverage is the number of cells that a joint visits in an episode, where a cell is a 32nd of its range in the space of
  observations. It is a mean over joints and the last 60 episodes: of random actions, of the explorer of phase 2, and
  of the explorer of phase 3.
- `probe` is the error of the world model of phase 3 on a fixed set of 32 episodes with held random actions. It was
  trained on random episodes or on the explorer's, with the same number of steps and updates.

"""
