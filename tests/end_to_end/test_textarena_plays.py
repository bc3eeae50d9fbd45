"""Self-play, and a run as opponent: stored rollouts, metrics and tables have a trajectory for each role."""

from __future__ import annotations

from pathlib import Path

import pytest
import rlcore
from finished_runs import metrics, succeeded
from preloaded import rlcore_command
from rlcore.rollouts.records import read_groups

SHORT = (
    *("warmup.steps=2", "trainer.steps=1", "trainer.tasks_per_step=2", "rollout.group_size=3"),
    *("evaluation.tasks=2", "evaluation.every=1", "data.train=4", "data.evaluation=2"),
    # Both players can say anything first, so an untrained policy plays both roles.
    *(
        "data.game=IteratedPrisonersDilemma-v0",
        "data.arguments=null",
        "data.arguments.num_rounds=1",
        "data.arguments.communication_turns=1",
    ),
)


def run(folder: Path, *words: str) -> str:
    done = succeeded(rlcore_command([*words], folder, timeout_s=500))
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_self_play_trains_both_roles_and_its_run_can_be_the_opponent(tmp_path: Path) -> None:
    run(tmp_path, "run", "-p", "textarena", "-r", "textarena/self-play", "name=self", *SHORT)
    folder = tmp_path / "runs" / "self"
    (path,) = (folder / "rollouts").glob("train-000001*")
    for group in read_groups(path):
        assert [one.sibling for one in group.trajectories] == list(range(len(group.trajectories)))
        assert len(group.trajectories) == 6
        assert list(group.roles) == ["player-0", "player-1"]
        games = zip(group.roles["player-0"].rewards_G, group.roles["player-1"].rewards_G, strict=True)
        assert all(first is not None and second is not None and first + second == 0 for first, second in games)
    lines = metrics(folder)
    (trained,) = [line for line in lines if "reward/mean" in line]
    assert trained["reward/player-0"] == -trained["reward/player-1"]
    assert trained["reward/mean"] == 0.0
    assert {"evaluation/player-0/reward", "evaluation/player-1/reward"} <= {name for line in lines for name in line}
    rows = list(rlcore.load_run(folder).trajectories("train").rows())
    assert [row["role"] for row in rows] == ["player-0", "player-1"] * 6
    shown = run(tmp_path, "data", "show", "runs/self", "--purpose", "train", "--where", 'role == "player-1"', "-n", "9")
    assert shown.count("player-1: ") == 6

    run(tmp_path, "run", "-p", "textarena", "name=frozen", "data.opponent=runs/self", *SHORT)
    (path,) = (tmp_path / "runs" / "frozen" / "rollouts").glob("train-000001*")
    groups = list(read_groups(path))
    assert {role for group in groups for role in group.roles} == {"player-0", "player-1"}
    assert all(one.reward is not None for group in groups for one in group.trajectories)
