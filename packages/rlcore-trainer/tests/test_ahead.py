"""Sampling ahead of training, during updates and transfers of weights."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import EngineError
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer

Make = Callable[..., Any]
TABLES: dict[str, Any] = {"schedule": {"ahead": 1}, "trainer": {"steps": 4}, "evaluation": {"every": 0}}


def test_groups_are_sampled_during_updates_and_transfers(bandit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second step's groups end only when the first step's weights have been transferred."""
    run = bandit(directory=None, **TABLES)
    trainer = PolicyGradientTrainer(run)
    sampler, transferred = run.bandit, threading.Event()
    update_weights = sampler.update_weights

    def noted(source: Any) -> None:
        update_weights(source)
        if source.version == 1:
            transferred.set()

    monkeypatch.setattr(sampler, "update_weights", noted)
    sampler.delay = lambda request: request.step == 2 and transferred.wait(30)
    trainer.train()
    assert transferred.is_set()
    assert run.recorded == [(step, "train") for step in (1, 2, 3, 4)]
    assert run.logged[2]["stream/age_max"] == 1  # all of its groups were sampled with the first weights
    assert run.logged[2]["logprob_gap/mean"] > 1e-3  # the update in between
    assert run.logged[2]["rollout_is/factor"] == pytest.approx(1, abs=0.2)
    assert any("off-policy, with sampling 1 step ahead" in line for line in run.said)
    assert "groups    16 submitted: 16 trained, 0 left" in run.said


def test_engine_that_fails_samples_its_groups_again_with_the_newest_weights(bandit: Make) -> None:
    run = bandit(directory=None, engine_fails=lambda request: request == 10, **TABLES)
    PolicyGradientTrainer(run).train()
    assert sorted(run.logged) == [1, 2, 3, 4]
    assert len(run.bandit.requests) == 17
    assert len([line for line in run.said if "engine    failed; retrying" in line]) == 1
    run = bandit(directory=None, engine_fails=lambda request: request >= 10, **TABLES)
    with pytest.raises(EngineError, match="the engine died"):
        PolicyGradientTrainer(run).train()
    assert 1 in run.logged


@pytest.mark.parametrize("filter", [{}, {"metric": "reward", "max_extra_batches": 1}])
def test_resumed_run_samples_again_what_was_running(bandit: Make, tmp_path: Path, filter: dict[str, Any]) -> None:
    tables = {**TABLES, "algorithm": {"filter": filter}, "checkpoint": {"every": 1}}
    cut = bandit(directory="cut", stop_after=2, **tables)
    trainer = PolicyGradientTrainer(cut)
    cut.bandit.delay = lambda request: request.step == 2 and threading.Event().wait(0.2)
    trainer.train()
    state = json.loads((tmp_path / "cut/checkpoints/last/collection.json").read_text(encoding="utf-8"))
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/last", **tables)
    PolicyGradientTrainer(rest).train()
    assert sorted(rest.logged) == [3, 4]
    running = [(one["batch"], one["id"]) for one in state["running"]]
    assert sorted((one.step, one.tasks[0].id) for one in rest.bandit.requests[: len(running)]) == sorted(running)


@pytest.mark.slow
def test_policy_learns_from_groups_of_earlier_steps(bandit: Make) -> None:
    run = bandit(directory=None, **{**TABLES, "schedule": {"ahead": 2}, "trainer": {"steps": 20}})
    PolicyGradientTrainer(run).train()
    assert run.logged[1]["accuracy"] < 0.7
    assert run.logged[20]["accuracy"] > 0.9
