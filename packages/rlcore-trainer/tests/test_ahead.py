"""Sampling one step ahead of training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer

Make = Callable[..., Any]
TABLES: dict[str, Any] = {"schedule": {"ahead": 1}, "trainer": {"steps": 4}, "evaluation": {"every": 0}}


def test_the_next_step_is_sampled_during_an_update(bandit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine fails here if the update of the step before does not begin while it samples."""
    updating = {step: threading.Event() for step in range(1, 5)}
    run = bandit(
        directory=None, engine_fails=lambda request: request > 1 and not updating[request - 1].wait(30), **TABLES
    )
    trainer = PolicyGradientTrainer(run)
    update = trainer.update.run

    def noted(groups: Any, *, key: Any, **settings: Any) -> Any:
        updating[key[1]].set()
        return update(groups, key=key, **settings)

    monkeypatch.setattr(trainer.update, "run", noted)
    trainer.train()
    assert [request.step for request in run.bandit.requests] == [1, 2, 3, 4]
    assert run.bandit.versions == [0, 0, 1, 2]
    assert run.recorded == [(step, "train") for step in (1, 2, 3, 4)]
    assert not any("retrying" in line for line in run.said)
    assert run.logged[3]["logprob_gap/mean"] > 1e-3  # the update in between
    assert run.logged[3]["rollout_is/factor"] == pytest.approx(1, abs=0.2)


def test_engine_that_fails_meanwhile_samples_again_with_the_newest_weights(bandit: Make) -> None:
    run = bandit(directory=None, engine_fails=lambda request: request == 3, **TABLES)
    PolicyGradientTrainer(run).train()
    assert [request.step for request in run.bandit.requests] == [1, 2, 3, 3, 4]
    assert run.bandit.versions == [0, 0, 1, 2, 2]
    assert sorted(run.logged) == [1, 2, 3, 4]
    assert [line for line in run.said if "retrying the rollout of step 3" in line]


@pytest.mark.parametrize("filter", [{}, {"metric": "reward", "max_extra_batches": 1}])
def test_stopped_run_samples_the_next_step_again(bandit: Make, tmp_path: Path, filter: dict[str, Any]) -> None:
    tables = {**TABLES, "algorithm": {"filter": filter}, "checkpoint": {"every": 1}}
    whole = bandit(directory="whole", **tables)
    PolicyGradientTrainer(whole).train()
    cut = bandit(directory="cut", stop_after=2, **tables)
    PolicyGradientTrainer(cut).train()
    assert sorted(cut.logged) == [1, 2]
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/last", **tables)
    PolicyGradientTrainer(rest).train()
    assert sorted(rest.logged) == [3, 4]
    first, others = rest.bandit.requests[0], [one for one in whole.bandit.requests if one.step == 3]
    assert [task.id for task in first.tasks] == [task.id for task in others[0].tasks]


@pytest.mark.slow
def test_policy_learns_from_groups_of_the_step_before(bandit: Make) -> None:
    tables = {**TABLES, "trainer": {"steps": 20}}
    run = bandit(directory=None, **tables)
    PolicyGradientTrainer(run).train()
    assert run.logged[1]["accuracy"] < 0.7
    assert run.logged[20]["accuracy"] > 0.9
