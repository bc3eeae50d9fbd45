"""Experts, and the controls of the bundled tasks: nothing and chance do not succeed, the expert does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sapien", reason="needs the extra sapien")

from rl_plugin_robotwin.config import SHOWN, DataConfig, EnvironmentConfig, PrepareConfig
from rl_plugin_robotwin.data.bundled_tasks import BundledTasks, recorded
from rl_plugin_robotwin.data.demonstrations import attempt, demonstrations, prepare, read
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.experts import follow
from rl_plugin_robotwin.simulation.rotations import matrix_of_vector, vector_of_matrix
from rl_plugin_robotwin.tasks import TASKS
from rl_plugin_robotwin.tasks.plan import Aim, Move, nearest_grasp
from rl_plugin_robotwin.tasks.state import SIDES, Measured, Tool
from rlcore.errors import DataError, UserError

MODES = ("delta_qpos", "delta_ee", "qpos", "ee")


@pytest.mark.parametrize("name", TASKS)
def test_experts_succeed_and_their_actions_replay_exactly(name: str) -> None:
    environment = BimanualEnvironment(task=name, control="delta_ee")
    tried = attempt(environment, seed=0)
    assert tried.success
    shown = tried.demonstration
    observation, _ = environment.reset(seed=shown.seed)
    for row, action in enumerate(shown.actions):
        for key, value in observation.items():
            np.testing.assert_array_equal(value, shown.observations[key][row])
        observation, *_, info = environment.step(action)
    assert info["is_success"]
    environment.close()


@pytest.mark.parametrize("mode", MODES)
def test_experts_act_in_every_mode(mode: str) -> None:
    environment = BimanualEnvironment(task="stack_two", control=mode)
    assert attempt(environment, seed=1).success
    environment.close()


@pytest.mark.parametrize("name", TASKS)
def test_neither_nothing_nor_chance_succeeds(name: str) -> None:
    environment = BimanualEnvironment(task=name, control="delta_ee", max_steps=40)
    assert not any(successes(environment, seeds=(0, 1), chance=False))
    assert not any(successes(environment, seeds=(0, 1), chance=True))
    environment.close()


@pytest.mark.proof
@pytest.mark.parametrize("name", TASKS)
def test_experts_succeed_nine_times_in_ten_and_controls_never(name: str) -> None:
    environment = BimanualEnvironment(task=name)
    expert = [attempt(environment, seed=seed).success for seed in range(20)]
    assert sum(expert) > 18
    assert not any(successes(environment, seeds=range(20), chance=False))
    assert sum(successes(environment, seeds=range(20), chance=True)) <= 1
    environment.close()


def successes(environment: BimanualEnvironment, *, seeds: Iterable[int], chance: bool) -> list[bool]:
    found = []
    for seed in seeds:
        generator, over, once = np.random.default_rng(seed), False, False
        environment.reset(seed=seed)
        while not over:
            action = np.zeros(14, np.float32)
            if chance:
                action = generator.uniform(-1, 1, action.shape).astype(np.float32)
            *_, terminated, truncated, info = environment.step(action)
            over, once = terminated or truncated, once or info["is_success"]
        found.append(once)
    return found


def test_demonstrations_come_from_consecutive_seeds_and_repeat() -> None:
    environment = BimanualEnvironment(task="reach", control="delta_ee")
    first, again = ([*demonstrations(environment, 2, seed=5)] for _ in range(2))
    assert [shown.seed for shown in first] == [5, 6]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.actions, other.actions)
        assert one.instruction == other.instruction
    environment.close()


def test_an_expert_without_time_is_an_error() -> None:
    environment = BimanualEnvironment(task="stack_two", max_steps=3)
    with pytest.raises(DataError, match="fails too often") as caught:
        list(demonstrations(environment, 1, seed=0))
    environment.close()
    assert "environment.max_steps from 3" in str(caught.value.fix)
    assert "height" not in str(caught.value.fix)


def test_tools_move_together_and_no_faster_than_allowed() -> None:
    start = {side: Tool(position=np.zeros(3), rotation=downward_tool(), opening=1.0) for side in SIDES}
    measured = Measured(bodies={}, tools=start)
    aims = Move(left=Aim(position=np.array([0.0, 0.0, 0.1])), right=Aim(position=np.array([0.2, 0.0, 0.0])), settle=2)
    commands = [*follow(iter([aims]), lambda: measured)]
    assert len(commands) == 8 + 2
    for before, after in pairwise(commands):
        assert np.linalg.norm(after["right"].position - before["right"].position) <= 0.0251
    assert commands[3]["left"].position == pytest.approx([0, 0, 0.05])
    assert commands[-1]["right"].position == pytest.approx([0.2, 0, 0])


def downward_tool() -> np.ndarray:
    return np.array([np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0])


def test_cubes_are_grasped_with_the_smallest_turn() -> None:
    assert nearest_grasp(0.3) == pytest.approx(0.3)
    assert nearest_grasp(np.pi / 2 + 0.1) == pytest.approx(0.1)
    assert nearest_grasp(-1.0) == pytest.approx(np.pi / 2 - 1.0)


def test_rotation_vectors_are_recovered_from_matrices() -> None:
    for vector in np.random.default_rng(0).uniform(-1.5, 1.5, (20, 3)):
        np.testing.assert_allclose(vector_of_matrix(matrix_of_vector(vector)), vector, atol=1e-9)
    np.testing.assert_allclose(vector_of_matrix(np.eye(3)), 0)


def test_seeds_of_training_evaluation_and_demonstrations_are_disjoint() -> None:
    data = BundledTasks(DataConfig(train=50, evaluation=5), environment=lambda: BimanualEnvironment(task="reach"))
    seeds = {split: {task.fields["seed"] for task in data.tasks(split)} for split in ("train", "evaluation")}
    assert len(seeds["train"]) == 50
    assert len(seeds["evaluation"]) == 5
    shown = list(data.episodes(2, seed=0))
    assert len(shown) == 2
    assert shown == list(data.episodes(2, seed=9))
    assert not seeds["train"] & seeds["evaluation"]
    assert SHOWN not in seeds["train"] | seeds["evaluation"]


def test_demonstrations_of_another_environment_are_refused() -> None:
    with pytest.raises(UserError, match="recorded in a bundled task"):
        list(BundledTasks(DataConfig()).episodes(1, seed=0))


def test_prepared_files_hold_the_same_demonstrations(tmp_path: Path) -> None:
    out = tmp_path / "reach.npz"
    summary = prepare(PrepareConfig(out=out, count=2, task="reach", control="delta_ee"))
    assert "2 episodes" in str(summary["written"])
    environment = BimanualEnvironment(task="reach", control="delta_ee")
    live = [recorded(shown) for shown in demonstrations(environment, 2, seed=SHOWN)]
    assert list(BundledTasks(DataConfig(demonstrations=out)).episodes(5, seed=0)) == live
    with pytest.raises(UserError, match="exists already"):
        prepare(PrepareConfig(out=out, count=2))
    environment.close()
    with pytest.raises(DataError, match="another environment") as caught:
        list(read(out, EnvironmentConfig(task="reach", control="delta_qpos")))
    assert "environment.control=delta_ee, but delta_qpos" in str(caught.value.found)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("actions", lambda rows: np.where(np.arange(len(rows))[:, None] == 3, np.nan, rows), "not finite"),
        ("actions", lambda rows: rows.astype(str), "isfinite"),
        ("lengths", lambda lengths: lengths[:0], "zero-size"),
        ("lengths", lambda lengths: lengths * [-1, 1] + [0, 2 * lengths[0]], "lengths"),
        ("lengths", lambda lengths: lengths + 1, "lengths"),
    ],
)
def test_damaged_demonstrations_are_refused(
    tmp_path: Path, archive: dict[str, Any], name: str, change: Callable[[Any], Any], says: str
) -> None:
    np.savez(tmp_path / "changed.npz", **archive | {name: change(archive[name])})
    with pytest.raises(DataError, match="cannot be read") as caught:
        list(read(tmp_path / "changed.npz"))
    assert says in str(caught.value.found)
    assert "data.demonstrations" in str(caught.value.where)


def test_a_missing_file_of_demonstrations_is_told_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read") as caught:
        BundledTasks(DataConfig(demonstrations=tmp_path / "nothing.npz")).tasks("train")
    assert "nothing.npz" in str(caught.value.found)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The arrays of a file with two demonstrations."""
    out = tmp_path_factory.mktemp("shown") / "reach.npz"
    prepare(PrepareConfig(out=out, count=2, task="reach", control="delta_ee"))
    with np.load(out) as found:
        return dict(found)


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_files_without_demonstrations_are_explained(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "shown.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read") as caught:
        list(read(path))
    assert "rlcore data prepare robotwin" in str(caught.value)
