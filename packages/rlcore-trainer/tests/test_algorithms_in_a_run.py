"""Every advantage, loss, filter and critic in whole runs of the two-token bandit."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_trainer.algorithms import ADVANTAGES, LOSSES
from rlcore_trainer.policy_gradient import PolicyGradientTrainer

Make = Callable[..., Any]

CRITIC = {"model": "copy", "learning_rate": 0.01}
ADAPTIVE = {"coefficient": 0.1, "target": "reward", "controller": "adaptive", "target_kl": 0.001, "horizon": 100}
RESUMED: dict[str, dict[str, Any]] = {
    "filter": {"algorithm": {"filter": {"metric": "accuracy"}}},
    "oversampling": {"algorithm": {"filter": {"oversample": 2.5}}},
    "ranking": {"algorithm": {"filter": {"metric": "reward", "oversample": 1.5, "rank_by_std": True}}},
    "skipping": {"algorithm": {"filter": {"metric": "accuracy", "when_short": "skip", "max_extra_batches": 0}}},
    "critic": {"algorithm": {"advantage": "gae"}, "critic": CRITIC},
    "head": {"algorithm": {"advantage": "gae"}, "critic": {"model": "head"}},
    "adaptive KL": {"algorithm": {"kl": ADAPTIVE}},
}


def trained(run: Any) -> Any:
    trainer = PolicyGradientTrainer(run)
    trainer.train()
    return trainer._model


def timeless(logged: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    return {
        step: {name: value for name, value in metrics.items() if not name.startswith("time/")}
        for step, metrics in logged.items()
    }


@pytest.mark.parametrize("advantage", [one.id for one in ADVANTAGES])
def test_every_advantage_makes_the_good_token_likelier(bandit: Make, advantage: str) -> None:
    run = bandit(
        directory=None,
        trainer={"steps": 12, "learning_rate": 0.01, "tasks_per_step": 8},
        algorithm={"advantage": advantage},
        critic=CRITIC if advantage == "gae" else {},
        evaluation={"every": 0},
        # With many siblings the second best is as good as the best.
        rollout={"group_size": 2 if advantage == "pass-at-k" else 8},
    )
    trained(run)
    assert run.logged[12]["accuracy"] > max(0.75, run.logged[1]["accuracy"])


@pytest.mark.parametrize("loss", [one.id for one in LOSSES])
def test_every_loss_makes_the_good_token_likelier(bandit: Make, loss: str) -> None:
    run = bandit(
        directory=None,
        trainer={"steps": 8, "learning_rate": 0.01, "tasks_per_step": 4, "updates_per_rollout": 2},
        algorithm={"loss": loss},
        evaluation={"every": 0},
        rollout={"group_size": 8},
    )
    trained(run)
    assert run.logged[8]["accuracy"] > max(0.75, run.logged[1]["accuracy"])


@pytest.mark.parametrize("name", RESUMED)
def test_what_an_algorithm_carries_along_survives_an_interruption(bandit: Make, tmp_path: Path, name: str) -> None:
    def tables() -> dict[str, Any]:
        shared = {"trainer": {"steps": 6, "tasks_per_step": 3, "learning_rate": 0.02}, "rollout": {"group_size": 4}}
        return deepcopy({**shared, "checkpoint": {"every": 2, "keep": 9}, **RESUMED[name]})

    whole = bandit(directory="whole", **tables())
    expected = trained(whole).state_dict()
    cut = bandit(directory="cut", stop_after=3, **tables())
    trained(cut)
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/000003", **tables())
    found = trained(rest).state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert timeless(cut.logged) | timeless(rest.logged) == timeless(whole.logged)


def test_a_greedy_baseline_is_asked_for_once_a_step_and_never_trained_on(bandit: Make) -> None:
    run = bandit(algorithm={"advantage": "remax"}, trainer={"steps": 2, "tasks_per_step": 3}, evaluation={"every": 0})
    trained(run)
    asked = [(one.purpose, len(one.tasks), one.group_size) for one in run.sampler.requests]
    assert asked == [("train", 3, 8), ("baseline", 3, 1)] * 2
    assert [purpose for _, purpose in run.recorded] == ["train", "train"]


def test_while_the_critic_warms_up_the_policy_stays(bandit: Make) -> None:
    critic = {**CRITIC, "learning_rate": 0.001, "warmup_steps": 2}
    run = bandit(algorithm={"advantage": "gae"}, critic=critic, trainer={"steps": 3}, evaluation={"every": 0})
    trained(run)
    assert [run.logged[step]["updates"] for step in (1, 2, 3)] == [0.0, 0.0, 1.0]
    assert all(run.logged[step]["critic/gradient_norm"] > 0 for step in (1, 2, 3))
    assert run.sampler.synced == [0, 0, 0, 0, 1]  # twice at the start, and after every step
    assert any("only the critic learns" in line for line in run.said)


def test_what_was_resolved_is_said(bandit: Make) -> None:
    run = bandit(algorithm={"importance_sampling_level": "sequence"}, trainer={"steps": 1}, evaluation={"every": 0})
    trained(run)
    (line,) = (line for line in run.said if line.startswith("algorithm"))
    assert "gspo loss with ratios of whole trajectories, clip 0.0003 below and 0.0004 above 1" in line
    assert "seq-mean-token-mean, no KL" in line
