"""Evaluations count what the protocol says, and explain what they cannot do."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rlcore.errors import ConfigError, DataError, NotScoredError, UserError, WriteError

pytest.importorskip("sapien", reason="needs rl-plugin-robotwin[sapien]")

from rl_plugin_robotwin.command import robotwin
from rl_plugin_robotwin.data.demonstrations import demonstrations
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.evaluation.arenas import Place, open_arena
from rl_plugin_robotwin.evaluation.cli import options_of, tasks_of, trained_options
from rl_plugin_robotwin.evaluation.evaluating import Request, evaluate
from rl_plugin_robotwin.evaluation.jobs import Setting
from rl_plugin_robotwin.evaluation.policies import Control, open_policy
from rl_plugin_robotwin.evaluation.results import Episode, TaskResult
from rl_plugin_robotwin.evaluation.seeds import FIRST
from rl_plugin_robotwin.evaluation.workers import Workers


def evaluated(policy: str, *, options: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    place = Place(options=options or {}, level=given.pop("level", "easy"))
    setting = Setting(place=place, policy=policy)
    return evaluate(Request(tasks=["reach"], setting=setting, episodes=given.pop("episodes", 2), **given))


def episode(*, success: bool = False, exception: str = "") -> Episode:
    return Episode(
        seed=0,
        used=0,
        success=success,
        success_at_end=success,
        steps=1,
        plan_failures=0,
        instruction="",
        exception=exception,
    )


def test_the_expert_succeeds_where_doing_nothing_fails() -> None:
    expert, nothing = evaluated("expert"), evaluated("no-op", expert_filter=False, options={"max_steps": 10})
    assert expert["tasks"]["reach"]["successes"] == 2
    assert nothing["tasks"]["reach"]["successes"] == 0
    assert [one["steps"] for one in nothing["tasks"]["reach"]["list"]] == [10, 10]
    assert [one["seed"] for one in nothing["tasks"]["reach"]["list"]] == [FIRST, FIRST + 1]


def test_a_random_policy_repeats_itself_and_the_seeds_of_a_series() -> None:
    found = [evaluated("random", expert_filter=False, series=1, options={"max_steps": 20}) for _ in range(2)]
    assert found[0]["tasks"] == found[1]["tasks"]
    assert found[0]["first_seed"] == 2 * FIRST


def test_exceptions_are_counted_apart_from_failures() -> None:
    episodes = (episode(success=True), episode(), episode(exception="it fell over"))
    found = TaskResult(task="reach", candidates=(), episodes=episodes).summary()
    assert (found["success"], found["exceptions"]) == (0.5, 1)
    assert found["success_with_exceptions_as_failures"] == pytest.approx(1 / 3)
    assert found["interval"] == pytest.approx([0.0945, 0.9055], abs=1e-3)


def test_seeds_are_stored_and_used_again(tmp_path: Path) -> None:
    file = tmp_path / "lists" / "seeds.json"
    first = evaluated("expert", seeds=file)
    content = json.loads(file.read_text())
    content["tasks"]["reach"][0]["seed"] += 1000
    file.write_text(json.dumps(content))
    again = evaluated("expert", seeds=file)
    assert again["tasks"]["reach"]["list"][0]["seed"] == first["tasks"]["reach"]["list"][0]["seed"] + 1000


def test_seeds_of_another_level_are_rejected(tmp_path: Path) -> None:
    evaluated("no-op", seeds=tmp_path / "seeds.json", episodes=1, expert_filter=False, options={"max_steps": 1})
    with pytest.raises(DataError) as caught:
        evaluated("no-op", seeds=tmp_path / "seeds.json", expert_filter=False, level="hard")
    assert "level" in str(caught.value.found)


def test_a_broken_list_of_seeds_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "seeds.json").write_text('{"tasks": 3}')
    with pytest.raises(DataError):
        evaluated("no-op", seeds=tmp_path / "seeds.json")


def test_too_few_feasible_seeds_are_an_error() -> None:
    with pytest.raises(DataError) as caught:
        evaluated("no-op", episodes=1, options={"max_steps": 1})
    assert "(20 failure)" in str(caught.value.found)


class Broken(Control):
    """Does nothing, and asks for an action that is not finite twice: late in an episode, and first in the next one."""

    calls = 0

    def actions(self, observation: Mapping[str, Any]) -> Sequence[Any]:
        (action,) = super().actions(observation)
        self.calls += 1
        return [action * np.nan if self.calls in (4, 5) else action]


def test_actions_that_are_not_finite_are_exceptions_of_their_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_plugin_robotwin.evaluation.policies.Control", Broken)
    found = evaluated("no-op", episodes=4, expert_filter=False, options={"max_steps": 5})["tasks"]["reach"]
    assert ["nan at index 0" in one["exception"] for one in found["list"]] == [True, True, False, False]
    assert (found["exceptions"], found["successes"]) == (2, 0)


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes that never come to rest."""
    monkeypatch.setattr(BimanualEnvironment, "_build", lambda *_: None)


def test_an_evaluation_without_any_result_fails(falling: None) -> None:
    result = CliRunner().invoke(robotwin, ["evaluate", "reach", "--episodes", "2", "--no-expert-filter"])
    assert "no result, 2 exceptions" in result.output
    assert isinstance(result.exception, NotScoredError)
    assert "did not come to rest" in str(result.exception)


def test_unstable_seeds_are_counted_in_the_message(falling: None) -> None:
    with pytest.raises(DataError) as caught:
        evaluated("expert", episodes=1)
    assert "20 unstable, first: the boxes" in str(caught.value.found)
    assert len(str(caught.value)) < 700


def test_demonstrations_of_unstable_seeds_are_an_explained_error(falling: None) -> None:
    environment = BimanualEnvironment(task="reach")
    with pytest.raises(DataError) as caught:
        list(demonstrations(environment, 1, seed=0))
    assert "did not come to rest" in str(caught.value.found)


def test_hard_varies_the_looks_of_the_same_seed() -> None:
    easy, hard = (open_arena("reach", Place(level=level)).environment for level in ("easy", "hard"))
    environment: Any = hard
    assert environment.config.domain_randomization.random_background
    assert environment.config.looks == "unseen"
    plain: Any = easy
    assert not plain.config.domain_randomization.random_background


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["reach", "--policy", "nowhere"], "--policy"),
        (["reach", "--videos", "1"], "--out"),
        (["reach", "task=lift"], "task=lift"),
        (["stack_blocks_two"], "RLCORE_ROBOTWIN"),
        (["raech"], "did you mean 'reach'?"),
        (["reach", "cameras=5"], "environment.cameras"),
        (["reach", "speed=2"], "environment.speed"),
        (["reach", "--python", "python3"], "--python"),
        (["reach", "lift", "--checkout", "RoboTwin"], "--checkout"),
        (["reach", "timing=topp"], "use control=qpos or control=ee"),
        (["reach", "--policy", "random", "control=ee", "--no-expert-filter"], "control"),
    ],
)
def test_mistakes_are_explained(words: list[str], word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLCORE_ROBOTWIN", raising=False)
    result = CliRunner().invoke(robotwin, ["evaluate", *words, "--episodes", "1"])
    assert isinstance(result.exception, UserError)
    assert word in str(result.exception)


@pytest.mark.parametrize(("option", "name"), [("--out", "file"), ("--out", "file/new"), ("--seeds", "file/seeds.json")])
def test_folders_are_made_before_anything_is_played(tmp_path: Path, option: str, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    result = CliRunner().invoke(robotwin, ["evaluate", "reach", "--episodes", "1", option, str(tmp_path / name)])
    assert isinstance(result.exception, WriteError)
    assert option in str(result.exception)
    assert "reach:" not in result.output
    assert (tmp_path / "file").read_text() == "mine"


def test_results_that_cannot_be_written_are_explained(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    with pytest.raises(WriteError) as caught:
        evaluated("no-op", out=tmp_path, episodes=1, expert_filter=False, options={"max_steps": 1})
    assert "--resume" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json"]


@pytest.mark.long
def test_a_missing_video_is_explained_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    (tmp_path / "videos").write_text("")
    place = Place(options={"max_steps": 1}, watched=True)
    request = Request(
        tasks=["reach"],
        setting=Setting(place=place, policy="no-op"),
        episodes=1,
        videos=1,
        out=tmp_path,
        expert_filter=False,
    )
    (missing,) = evaluate(request)["missing_videos"]
    assert "videos" in missing
    assert "\n" not in missing


@pytest.mark.long
def test_a_worker_that_dies_ends_the_evaluation_with_an_explanation() -> None:
    setting = Setting(place=Place(options={"max_steps": 1}), policy="no-op")
    with Workers(setting, 2) as workers:
        assert len(list(workers.do("try_seed", [("reach", 0), ("reach", 1)]))) == 2
        for process in multiprocessing.active_children():
            os.kill(process.pid or 0, signal.SIGKILL)
        with pytest.raises(NotScoredError) as caught:
            list(workers.do("try_seed", [("reach", 2)]))
    assert caught.value.exit_status == 1
    assert "--workers 2" in str(caught.value)


def test_a_policy_keeps_the_control_and_the_limit_of_its_training() -> None:
    run = {"id": "robotwin", "task": "reach", "control": "delta_ee", "max_steps": 30}
    assert trained_options(run, ["reach"], {}) == {"control": "delta_ee", "max_steps": 30}
    assert trained_options(run, ["reach", "lift"], {"control": "delta_ee"}) == {"control": "delta_ee"}
    assert trained_options({}, ["reach"], {"control": "qpos"}) == {}
    with pytest.raises(ConfigError, match="in the mode of control of its training"):
        trained_options(run, ["reach"], {"control": "delta_qpos"})


def test_the_command_prints_a_rate_with_its_interval(tmp_path: Path) -> None:
    words = ["evaluate", "reach", "--policy", "no-op", "--episodes", "1", "--no-expert-filter", "max_steps=2"]
    result = CliRunner().invoke(robotwin, [*words, "--out", str(tmp_path / "new" / "folder")])
    assert result.exception is None, result.output
    assert "reach: 0.0% (0.0% to 79.3%), 0 of 1 episodes" in result.output
    found = json.loads((tmp_path / "new" / "folder" / "results.json").read_text())
    assert found["protocol"] == "robotwin-v2"
    assert found["tasks"]["reach"]["list"][0]["steps"] == 2


def test_groups_of_tasks_and_tables_of_options() -> None:
    assert tasks_of(["reach", "bundled"]) == ["reach", "lift", "stack_two", "rank_three", "handover"]
    assert len(tasks_of(["blocks"])) == 4
    assert options_of(["cameras.head.width=64", "control=qpos"]) == {
        "cameras": {"head": {"width": 64}},
        "control": "qpos",
    }
    with pytest.raises(ConfigError):
        options_of(["environment.task=lift"])


def test_a_run_without_checkpoints_has_no_policy(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match="no checkpoint"):
        open_policy(str(tmp_path))


@pytest.mark.parametrize("name", ["model.pt", "notes.txt"])
def test_a_folder_without_a_policy_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(UserError, match="no policy") as caught:
        open_policy(str(tmp_path))
    assert ("networks of a phase" in str(caught.value.found)) == (name == "model.pt")
    assert caught.value.where == "--policy"


def test_a_video_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    from rlcore_control.videos import write_video

    frames = [np.full((17, 33, 3), level, np.uint8) for level in (0, 128, 255)]
    write_video(tmp_path / "videos" / "1.mp4", frames, rate=10)
    assert (tmp_path / "videos" / "1.mp4").stat().st_size > 0
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="video cannot be written"):
        write_video(blocked / "1.mp4", frames, rate=10)
    full = Path("/dev/full")
    if full.exists():
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UserError):
            write_video(full / "1.mp4", frames, rate=10)
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.long
def test_two_workers_find_the_same_as_one() -> None:
    one, two = (evaluated("expert", workers=count, episodes=3) for count in (1, 2))
    assert one["tasks"] == two["tasks"]
    assert one["overall"] == two["overall"]
