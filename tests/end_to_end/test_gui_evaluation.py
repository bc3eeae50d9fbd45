"""Evaluations and training of GUI agents: segments, results, marked pages, and the reward of the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import rlcore
from chat_server import Endpoint, reply
from gui_episodes import episode
from rl_plugin_aitw.actions import ACTIONS
from rlcore import Evaluation, Table, Task, Trajectory
from rlcore_gui.actions import Action
from rlcore_gui.answers import Answer, render
from rlcore_gui.tasks import episode_task, step_task
from rlcore_view.library import Library
from rlcore_view.routes import answer
from vision_folders import vision_folder

HERE = __file__
CLICK, OTHER, HOME = (
    Action(name="CLICK", position=(0.25, 0.5)),
    Action(name="CLICK", position=(0.75, 0.1)),
    Action(name="PRESS HOME"),
)
SAID = render(Answer(progress="p", reasoning="r", action=CLICK, summary="tapped the left"), ACTIONS)
"""What the scripted model always answers: right in every first step."""


class DataConfig(Table):
    id: str = ""
    episodes: bool = True
    count: int = 4
    repeats: int = 1
    """How often the memory is repeated in the prompts of single steps."""


class Recorded:
    """Episodes of three steps in two groups."""

    Config: ClassVar[type] = DataConfig

    def __init__(self, config: DataConfig) -> None:
        self.config = config

    def tasks(self, split: str) -> Sequence[Task]:
        tasks = []
        for number in range(self.config.count):
            group = ("general", "install")[number % 2]
            shown = episode(CLICK, OTHER, HOME, name=f"{split}-{number}", group=group, boxed=False)
            common: Any = {"instructions": "", "benchmark": "aitw"}
            if self.config.episodes:
                tasks.append(episode_task(shown, **common))
                continue
            for index, each in enumerate(shown):
                after = shown[index + 1] if index + 1 < len(shown) else None
                memory = (each.step.memory or "") * self.config.repeats
                tasks.append(step_task(each, memory="oracle", history=memory, following=after, **common))
        return tasks


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vision_folder(tmp_path_factory.mktemp("model"))


Evaluate = Callable[..., Evaluation]


@pytest.fixture
def evaluate(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    monkeypatch.chdir(tmp_path)

    def run(**tables: Any) -> Evaluation:
        return rlcore.evaluate(files=[written(values(model, **tables))])

    return run


def values(model: Path, **tables: Any) -> dict[str, Any]:
    rollout = {
        "engine": "scripted",
        "scripted": {"replies": [SAID]},
        "max_new_tokens": 400,
        "max_context_tokens": 2000,
        **tables.pop("rollout", {}),
    }
    return {
        "model": {"path": str(model), "chat_format": "qwen2.5-vl"},
        "environment": {"id": "aitw", **tables.pop("environment", {})},
        "data": {"id": f"{HERE}:Recorded", **tables.pop("data", {})},
        "reward": tables.pop("reward", [{"id": "aitw"}]),
        "observers": ["aitw"],
        "rollout": rollout,
        **tables,
    }


def written(tables: dict[str, Any]) -> Path:
    """A configuration file with these tables."""
    path = Path("run.yaml")
    path.write_text(json.dumps(tables), encoding="utf-8")
    return path


def trajectories(found: Evaluation) -> list[Trajectory]:
    return [one for group in found._found.groups for one in group.trajectories]


def policy_turns(library: Library, path: str) -> list[dict[str, Any]]:
    """What the page shows of the turns of the policy in the only trajectory of a group."""
    (one,) = answer(library, path, {})["trajectories"]
    return [turn for segment in one["segments"] for turn in segment["turns"] if turn["kind"] == "policy"]


def results() -> tuple[Path, dict[str, Any]]:
    """The folder of the only evaluation, and the content of its results."""
    (folder,) = Path("runs").iterdir()
    return folder, json.loads((folder / "results.json").read_text(encoding="utf-8"))


def test_results_name_the_model_of_an_endpoint(evaluate: Evaluate) -> None:
    server = Endpoint()
    server.answers = [reply(SAID)]
    try:
        evaluate(
            rollout={"engine": "openai", "openai": {"model": "teacher", "base_url": server.url}}, data={"count": 1}
        )
    finally:
        server.close()
    _, found = results()
    assert found["model"] == "teacher"


def test_every_step_of_an_episode_is_a_segment(evaluate: Evaluate) -> None:
    for one in trajectories(evaluate()):
        assert len(one.segments) == 3
        assert [len(segment.media) for segment in one.segments] == [1, 1, 1]
        assert [turn.reward for turn in one.turns if turn.kind == "policy"] == [1.0, 0.0, 0.0]
        prompts = [turn.messages[0].text for turn in one.turns if turn.kind == "observation"]
        assert [text.rpartition(": ")[2] for text in prompts] == ["none", "tapped the left", "tapped the left"]


def test_kept_screenshots_are_in_the_segment(evaluate: Evaluate) -> None:
    for one in trajectories(evaluate(environment={"screenshots": 2}, data={"count": 1})):
        assert [len(segment.media) for segment in one.segments] == [1, 2, 2]


def test_evaluation_writes_results_and_rollouts_with_marks(
    evaluate: Evaluate, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluate()
    folder, content = results()
    own = content["memory"]["own"]
    assert (own["episodes"], own["steps"], own["not_scored"]) == (4, 12, 0)
    assert own["metrics"]["action"]["value"] == pytest.approx(1 / 3)
    assert own["metrics"]["general/click"]["value"] == 0.5
    assert own["metrics"]["episode_success"]["value"] == 0.0
    low, high = own["metrics"]["action"]["interval"]
    assert 0 <= low < 1 / 3 < high <= 1
    assert [step["scores"]["action"] for step in content["steps"][:3]] == [1.0, 0.0, 0.0]
    assert content["steps"][0]["summary"] == "tapped the left"
    library = Library([folder])
    (line,) = answer(library, "runs", {})["runs"]
    assert (line["environment"], line["state"]) == ("aitw", "ended")
    notes = [
        turn["note"] for group in range(4) for turn in policy_turns(library, f"runs/{line['id']}/evaluation/0/{group}")
    ]
    assert len(notes) == 4 * 3
    assert sum(note["right"] for note in notes) == 4
    assert [mark["kind"] for mark in notes[0]["marks"]] == ["expected", "given"]
    assert notes[0]["lines"][0] == ["expected", "CLICK at 0.250, 0.500"]
    printed = "".join(capsys.readouterr())
    assert re.search(r"aitw, with the agent's own summaries as memory: 12 steps of 4 episodes", printed)
    assert f"rlcore view {folder}" in printed
    assert found.view(trajectories=2).contents.trajectories == 2


def test_oracle_memory_is_reported_under_its_own_name(evaluate: Evaluate) -> None:
    evaluate(data={"episodes": False})
    _, content = results()
    assert list(content["memory"]) == ["oracle"]
    assert {step["memory"] for step in content["steps"]} == {"oracle"}


def test_long_prompts_are_removed_before_the_run(evaluate: Evaluate, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluate(data={"episodes": False, "count": 1, "repeats": 50}, rollout={"max_prompt_tokens": 500})
    printed = "".join(capsys.readouterr())
    assert "2 tasks in data.evaluation: a prompt of more than 500 tokens" in printed
    assert found.summary.tasks == 1


def test_evaluation_uses_the_limits_of_the_run(evaluate: Evaluate) -> None:
    found = evaluate(data={"count": 1}, rollout={"max_new_tokens": 20})
    (one,) = trajectories(found)
    assert (one.stop, one.sampled_tokens) == ("length", 20)
    _, content = results()
    assert content["memory"]["own"]["unreadable"] == {"no action": 3}


def test_summary_reward_asks_for_the_next_step(evaluate: Evaluate) -> None:
    rewards = [{"id": "aitw"}, {"id": "aitw-history-summary", "weight": 0.5, "samples": 2}]
    found = trajectories(evaluate(data={"episodes": False, "count": 1}, reward=rewards))
    assert [one.metrics.get("completions", 0) for one in found] == [2, 2, 0]
    components = [one.rewards["aitw-history-summary"].components for one in found]
    assert [each["summaries"] for each in components] == [1, 1, 0]
    assert components[0]["next_action"] == 0.0, "the scripted model repeats its tap in the second step"
    assert all(one.failure is None for one in found)


def test_nothing_is_generated_without_the_summary_reward(evaluate: Evaluate) -> None:
    found = trajectories(evaluate(data={"episodes": False, "count": 1}))
    assert all("completions" not in one.metrics for one in found)


def test_training_evaluates_and_logs_the_metrics(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = values(
        model,
        data={"count": 2},
        reward=[{"id": "aitw"}, {"id": "aitw-history-summary", "weight": 0.5}],
        algorithm={"turn_rewards": "add"},
        evaluation={"every": 1},
        trainer={"steps": 1, "tasks_per_step": 2},
    )
    tables["rollout"] = {"engine": "torch", "group_size": 2, "max_new_tokens": 8, "max_context_tokens": 2000}
    run = rlcore.train(files=[written(tables)])
    last = json.loads((run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last["aitw/own/action"] == 0.0
    assert last["reward/aitw/readable"] == 0.0
    assert last["reward/aitw-history-summary/summaries"] == 0.0
    content = json.loads((run.path / "results" / "evaluation-000001.json").read_text(encoding="utf-8"))
    assert content["memory"]["own"]["steps"] == 6
    assert not (run.path / "sheets").exists()
