"""Runs with several environments: their tables, data and rewards."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.config.layers import override_layers, values_layer
from rlcore.config.merge import merge_layers
from rlcore.config.resolve import resolve
from rlcore.config.schema import EnvironmentTable
from rlcore.plugins.registry import Registry
from rlcore.rollouts.records import read_groups
from rlcore.session.plan import RunPlan
from rlcore.session.session import RunSession

Run = Callable[..., Any]
MIXED = """\
[model]
path = "builtin:tiny"

[[environment]]
id = "toy"
name = "easy"
weight = 3
[environment.data]
count = 2

[[environment]]
id = "toy"
name = "hard"
max_turns = 5
[[environment.reward]]
id = "length"
weight = 0.5

[[reward]]
id = "exact"

[data]
count = 6
"""


@pytest.fixture
def mixed(toy: Any) -> Path:
    path: Path = toy.work / "mixed.toml"
    path.write_text(MIXED, encoding="utf-8")
    return path


def session(values: dict[str, Any], *overrides: str) -> RunSession:
    resolved = resolve([values_layer(values, "test"), *override_layers(overrides)], Registry())
    return RunSession(RunPlan(resolved=resolved))


def test_each_environment_has_its_own_data_and_rewards(mixed: Path) -> None:
    run = session(tomllib.loads(MIXED))
    easy, hard = run.environments
    assert (easy.name, easy.data.count, [one.id for one in easy.rewards]) == ("easy", 2, ["exact"])  # type: ignore[union-attr]
    assert (hard.name, hard.data.count, [one.id for one in hard.rewards]) == ("hard", 6, ["length"])  # type: ignore[union-attr]
    assert run.environment("hard").config.max_turns == 5  # type: ignore[attr-defined]
    assert run.environment("easy").config.max_turns == 3  # type: ignore[attr-defined]
    assert [reward.id for reward in run.rewards("hard")] == ["length"]
    tasks = run.dataset.tasks("train")
    assert [(task.environment, task.id) for task in tasks[:3]] == [
        ("easy", "train-0"),
        ("easy", "train-1"),
        ("hard", "train-0"),
    ]
    assert len({task.key for task in tasks}) == len(tasks) == 8


def test_dry_run_shows_each_environment_and_resolves_to_itself(mixed: Path, rlcore: Run, tmp_path: Path) -> None:
    shown = rlcore("run", "-c", mixed, "environment.hard.reward.0.strict=false", "--dry-run", "-v")
    assert shown.status == 2  # length takes no options
    assert "environment.1.reward.0.strict" in shown.err
    shown = rlcore(
        "run",
        "-c",
        mixed,
        "environment.easy.reward.0.strict=false",
        "environment.0.weight=[[0, 1], [9, 0.5]]",
        "--dry-run",
        "-v",
    )
    assert shown.status == 0, shown.err
    tree = tomllib.loads(shown.out)
    assert "data" not in tree
    assert "reward" not in tree
    assert tree["environment"][0]["reward"] == [{"id": "exact", "weight": 1.0, "strict": False}]
    assert tree["environment"][0]["weight"] == [[0, 1.0], [9, 0.5]]
    assert tree["environment"][1]["data"]["count"] == 6
    changed = rlcore(
        "run", "-c", mixed, "environment.hard.data.train=here", "environment.hard.data.id=toy", "--dry-run", "-v"
    )
    assert "there is no data file here" in changed.err  # and the count is still that of [data]
    path = tmp_path / "again.toml"
    path.write_text(shown.out)
    again = rlcore("run", "-c", path, "--dry-run", "-v")
    assert tomllib.loads(again.out) == tree


def test_plan_with_several_environments_can_be_pickled(mixed: Path) -> None:
    import pickle

    plan = session(tomllib.loads(MIXED)).plan
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.resolved.tree() == plan.resolved.tree()


@pytest.mark.parametrize(
    ("overrides", "path", "reason"),
    [
        (["environment.1.name=easy"], "environment.1.name", "another environment has this name"),
        (["environment.0.weight=0", "environment.1.weight=0"], "environment.0.weight", "all weights are 0"),
        (["environment.0.weight=[[5, 1], [2, 1]]"], "environment.0.weight", "increasing"),
        (["environment.0.weight=-1"], "environment.0.weight", "greater than or equal"),
        (["environment.0.name=a/b"], "environment.0.name", "pattern"),
        (["environment.1.max_turn=2"], "environment.1.max_turn", "did you mean environment.1.max_turns ?"),
        (["environment.0.reward=[]"], "environment.0.reward", "at least 1 item"),
        (["environment.medium.weight=1"], "environment.medium", "there are: easy, hard; environment.2.id=ID"),
        (["environment.0.data.count=x"], "environment.0.data.count", "an integer"),
        (["environment.2.id=nothing"], "environment.2.id", "nothing"),
    ],
)
def test_mistake_in_one_environment_is_reported(
    overrides: list[str], path: str, reason: str, mixed: Path, rlcore: Run
) -> None:
    result = rlcore("run", "-c", mixed, *overrides, "--dry-run", "-v")
    assert result.status == 2
    assert path in result.err
    assert reason in result.err


@pytest.mark.parametrize("override", ["data.count=3", "reward.0.weight=2"])
def test_override_that_no_environment_uses_is_an_error(override: str, mixed: Path, rlcore: Run) -> None:
    own = ["environment.1.data.count=1", "environment.0.reward.0.id=exact"]
    text = MIXED.replace("max_turns = 5", "max_turns = 5\ndata.count = 1").replace(
        "weight = 3", 'weight = 3\nreward = [{id = "exact"}]'
    )
    mixed.write_text(text, encoding="utf-8")
    result = rlcore("run", "-c", mixed, *own, override, "--dry-run", "-v")
    assert result.status == 2
    assert f"environment.easy.{override.partition('=')[0]}" in result.err


def test_environment_is_added_by_an_override(rlcore: Run) -> None:
    added = ["environment.1.name=second", "environment.1.max_turns=7", "environment.1.id=toy"]
    shown = rlcore("run", "-p", "toy", *added, "--dry-run", "-v")
    assert shown.status == 0, shown.err
    first, second = tomllib.loads(shown.out)["environment"]
    assert (first["name"], first["max_turns"], second["name"], second["max_turns"]) == ("toy", 2, "second", 7)
    assert [one["id"] for one in second["reward"]] == ["exact", "length"]
    assert "command line: environment.1.max_turns=7" in shown.out


def test_reward_is_added_and_replaced_by_overrides_of_a_run(rlcore: Run) -> None:
    added = rlcore("run", "-p", "toy", "reward.2.weight=0.5", "reward.2.id=exact", "--dry-run", "-v")
    assert added.status == 0, added.err
    assert [one["weight"] for one in tomllib.loads(added.out)["reward"]] == [1.0, 0.0, 0.5]
    replaced = rlcore("run", "-p", "toy", "reward.0.strict=false", "reward.1.id=exact", "--dry-run", "-v")
    assert [one.get("strict") for one in tomllib.loads(replaced.out)["reward"]] == [False, True]
    refused = rlcore("run", "-p", "toy", "reward.3.id=exact", "--dry-run", "-v")
    assert refused.status == 2
    assert "reward.2.id=ID adds one" in refused.err


def test_new_id_of_a_reward_drops_the_options_of_the_old_one() -> None:
    base = values_layer({"reward": [{"id": "exact", "strict": True, "weight": 0.5}]}, "recipe")
    merged = merge_layers([base, *override_layers(["reward.0.mode=x", "reward.0.id=other"])])
    assert merged.tree["reward"] == [{"id": "other", "mode": "x", "weight": 0.5}]


def test_weight_changes_linearly_between_the_points_of_its_schedule() -> None:
    table = EnvironmentTable(id="toy", weight=[(10, 1.0), (20, 0.0)])
    assert [table.weight_at(step) for step in (0, 10, 12, 20, 99)] == [1.0, 1.0, 0.8, 0.0, 0.0]
    assert EnvironmentTable(id="toy", weight=2).weight_at(7) == 2


def test_rescoring_uses_the_rewards_of_each_environment(mixed: Path, rlcore: Run, toy: Any) -> None:
    assert rlcore("run", "-c", mixed, "trainer.steps=1", "name=r").status == 0
    (path,) = (toy.work / "runs" / "r" / "rollouts").glob("train-*")
    groups = list(read_groups(path))
    assert {group.task.environment for group in groups} == {"easy"}  # the toy trainer takes the first two tasks
    result = rlcore("data", "rescore", "runs/r", "environment.easy.reward.0.id=length")
    assert result.status == 0, result.err
    assert "rewards   easy: length (weight 1)\nrewards   hard: length (weight 0.5)" in result.out
    refused = rlcore("data", "rescore", "runs/r", "reward.0.id=length")
    assert refused.status == 2
    assert "environment.easy.reward.0.id" in refused.err


def test_evaluation_of_a_run_reports_each_environment(mixed: Path, rlcore: Run) -> None:
    result = rlcore("eval", "-c", mixed, "evaluation.tasks=2", "--json")
    assert result.status == 0, result.err
    found = json.loads(result.out)
    assert (found["tasks"], {name: one["tasks"] for name, one in found["environments"].items()}) == (
        4,
        {"easy": 2, "hard": 2},
    )
    printed = rlcore("eval", "-c", mixed, "evaluation.tasks=2").out
    assert "easy: 2 tasks" in printed
    assert printed.count("accuracy ") == 2, "there is no mean over different environments"
    assert "evaluation: 4 tasks in " in printed


def test_environment_with_too_few_tasks_for_its_weight_is_rejected(mixed: Path, rlcore: Run) -> None:
    result = rlcore("run", "-c", mixed, "trainer.tasks_per_step=4", "--dry-run", "-v")
    assert result.status == 2
    assert "3 different tasks of the environment 'easy'" in result.err


def test_plain_environment_has_no_name(rlcore: Run) -> None:
    run = session(tomllib.loads(MIXED) | {"environment": {"id": "toy"}})
    assert [one.name for one in run.environments] == [""]
    assert {task.environment for task in run.dataset.tasks("train")} == {""}
