"""The metric that decides the best checkpoint, the end of a run that no longer improves, and the names of metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rlcore.config.messages import ProblemsError
from rlcore.config.schema import MetricChoice, RunConfig
from rlcore.errors import UserError
from rlcore.session.plan import RunPlan
from rlcore_trainer.checks.metrics_check import check
from rlcore_trainer.config import EarlyStop
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.controller.session import score
from rlcore_trainer.metrics import METRICS, direction_of, metric_of

Make = Callable[..., Any]
VALUES: dict[str, Any] = {"model": {"path": "m"}, "environment": {"id": ""}, "reward": []}


def test_score_is_higher_for_a_better_step() -> None:
    metrics = {"evaluation/loss": 0.5, "evaluation/reward": 0.25, "evaluation/mine": 3.0}
    assert score(metrics, MetricChoice(), ["evaluation/loss"]) == (-0.5,)
    assert score(metrics, MetricChoice(metric="evaluation/reward"), []) == (0.25,)
    assert score(metrics, MetricChoice(metric="evaluation/mine"), []) == (3.0,)
    assert score(metrics, MetricChoice(metric="evaluation/mine", direction="min"), []) == (-3.0,)
    assert score(metrics, MetricChoice(), ["evaluation/reward", "evaluation/loss"]) == (0.25, -0.5)
    assert score({"evaluation/loss": float("nan")}, MetricChoice(), ["evaluation/loss"]) is None
    assert score({}, MetricChoice(), ["evaluation/loss"]) is None


@pytest.mark.parametrize(("direction", "better"), [("max", max), ("min", min)])
def test_best_checkpoint_follows_the_named_metric(
    bandit: Make, tmp_path: Path, direction: str, better: Callable[..., Any]
) -> None:
    best = {"metric": "evaluation/reward", "direction": direction}
    run = bandit(trainer={"steps": 6}, evaluation={"every": 1}, checkpoint={"every": 1, "keep": 9, "best": best})
    PolicyGradientTrainer(run).train()
    rewards = {step: metrics["evaluation/reward"] for step, metrics in run.logged.items()}
    wanted = better(rewards.values())
    latest = max(step for step, reward in rewards.items() if reward == wanted)
    link = tmp_path / "run/checkpoints/best"
    assert link.exists() == (latest > 0)  # the model before the first step has no checkpoint
    if latest:
        assert link.resolve().name == f"{latest:06d}"


def test_missing_metric_is_reported_before_the_first_step(bandit: Make) -> None:
    run = bandit(checkpoint={"best": {"metric": "evaluation/reword"}})
    with pytest.raises(UserError) as caught:
        PolicyGradientTrainer(run).train()
    assert "evaluation/reward" in str(caught.value.fix)
    assert "evaluation/accuracy" in str(caught.value.found)
    assert run.logged == {}


@pytest.mark.parametrize("patience", [1, 2])
def test_run_ends_when_the_metric_stops_improving(bandit: Make, tmp_path: Path, patience: int) -> None:
    early = {"patience": patience, "metric": "learning_rate", "direction": "max"}  # it is constant
    run = bandit(trainer={"steps": 9, "early_stop": early}, evaluation={"every": 0})
    PolicyGradientTrainer(run).train()
    assert max(run.logged) == 1 + patience
    assert any("has not improved" in line for line in run.said)
    again = bandit(
        resume_from=tmp_path / f"run/checkpoints/{1 + patience:06d}",
        trainer={"steps": 9, "early_stop": early},
        evaluation={"every": 0},
    )
    PolicyGradientTrainer(again).train()
    assert again.logged == {}


def test_small_changes_are_not_improvements(bandit: Make) -> None:
    growing = {"metric": "learning_rate", "direction": "max", "patience": 2}
    trainer = {"steps": 6, "lr_warmup_steps": 6, "learning_rate": 0.06}  # it grows by 0.01 a step
    run = bandit(trainer={**trainer, "early_stop": growing}, evaluation={"every": 0})
    PolicyGradientTrainer(run).train()
    assert max(run.logged) == 6
    run = bandit("other", trainer={**trainer, "early_stop": {**growing, "least_change": 0.05}}, evaluation={"every": 0})
    PolicyGradientTrainer(run).train()
    assert max(run.logged) == 3


@pytest.mark.parametrize(
    ("tables", "key", "fix"),
    [
        ({"checkpoint": {"best": {"metric": "evaluation/acuracy"}}}, "checkpoint.best.metric", "evaluation/accuracy"),
        ({"checkpoint": {"best": {"metric": "reward/mean"}}}, "checkpoint.best.metric", "evaluation/"),
        ({"checkpoint": {"best": {"direction": "min"}}}, "checkpoint.best.direction", "set it"),
        ({"early_stop": {"metric": "kl/mena", "patience": 1}}, "trainer.early_stop.metric", "kl/mean"),
        ({"early_stop": {"metric": "kl/mean", "patience": 1}}, "trainer.early_stop.metric", "direction"),
        ({"early_stop": {"metric": "time/step_s", "patience": 1}}, "trainer.early_stop.metric", "another"),
        ({"early_stop": {"metric": "accuracy"}}, "trainer.early_stop.metric", "patience"),
        ({"early_stop": {"patience": 3}, "evaluation": {"every": 0}}, "patience", "evaluation.every"),
    ],
)
def test_wrong_choice_of_a_metric_is_reported_with_a_fix(tables: dict[str, Any], key: str, fix: str) -> None:
    early_stop = EarlyStop(**tables.pop("early_stop", {}))
    config = RunConfig(**{**VALUES, **tables})
    run: Any = SimpleNamespace(config=config, resolved=SimpleNamespace(origin=lambda path: "a test"))
    (found,) = check(run, early_stop)
    assert key in found.key
    assert fix in found.fix


@pytest.mark.parametrize("key", ["warmup_steps", "warmup_ratio"])
def test_earlier_name_of_a_key_is_rejected_with_the_present_one(key: str) -> None:
    trainer = {"id": "sft", key: 0}
    with pytest.raises(ProblemsError) as caught:
        RunPlan.of({**VALUES, "trainer": trainer})
    assert f"trainer.lr_{key}" in str(caught.value)


def test_all_metrics_of_a_run_are_documented(bandit: Make) -> None:
    run = bandit(
        trainer={"steps": 3, "updates_per_rollout": 2},
        algorithm={"kl": {"coefficient": 0.1}, "entropy": 0.01, "filter": {"metric": "reward"}},
        evaluation={"every": 1},
    )
    PolicyGradientTrainer(run).train()
    names = {name for metrics in run.logged.values() for name in metrics}
    assert len(names) > 25
    assert sorted(name for name in names if metric_of(name) is None) == []
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert (direction_of("evaluation/loss"), direction_of("evaluation/accuracy")) == ("min", "max")
