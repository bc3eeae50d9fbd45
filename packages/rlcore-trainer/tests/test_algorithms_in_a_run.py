"""Every advantage, loss, filter and critic in whole runs of the two-token bandit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore_trainer.checks import resume_check
from test_policy_gradient import timeless, train

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("advantage", [spec.id for spec in Registry().specs("advantage") if spec.id != "none"])
def test_every_advantage_increases_the_probability_of_the_good_token(bandit: Make, advantage: str) -> None:
    run = bandit(
        directory=None,
        trainer={"steps": 12, "learning_rate": 0.01, "tasks_per_step": 8},
        algorithm={"advantage": advantage},
        critic=CRITIC if advantage == "gae" else {},
        evaluation={"every": 0},
        # With many siblings the second best is as good as the best.
        rollout={"group_size": 2 if advantage == "pass-at-k" else 8},
    )
    train(run)
    assert run.logged[12]["accuracy"] > max(0.75, run.logged[1]["accuracy"])


@pytest.mark.parametrize("loss", [spec.id for spec in Registry().specs("loss")])
def test_every_loss_increases_the_probability_of_the_good_token(bandit: Make, loss: str) -> None:
    run = bandit(
        directory=None,
        trainer={"steps": 8, "learning_rate": 0.01, "tasks_per_step": 4, "updates_per_rollout": 2},
        algorithm={"loss": loss},
        evaluation={"every": 0},
        rollout={"group_size": 8},
    )
    train(run)
    assert run.logged[8]["accuracy"] > max(0.75, run.logged[1]["accuracy"])


@pytest.mark.parametrize("name", RESUMED)
def test_algorithm_state_survives_an_interruption(bandit: Make, tmp_path: Path, name: str) -> None:
    def tables() -> dict[str, Any]:
        shared = {"trainer": {"steps": 6, "tasks_per_step": 3, "learning_rate": 0.02}, "rollout": {"group_size": 4}}
        return deepcopy({**shared, "checkpoint": {"every": 2, "keep": 9}, **RESUMED[name]})

    whole = bandit(directory="whole", **tables())
    expected = train(whole).state_dict()
    cut = bandit(directory="cut", stop_after=3, **tables())
    train(cut)
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/000003", **tables())
    found = train(rest).state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert timeless(cut.logged) | timeless(rest.logged) == timeless(whole.logged)


def test_greedy_baseline_is_sampled_once_per_step_and_not_trained_on(bandit: Make) -> None:
    run = bandit(algorithm={"advantage": "remax"}, trainer={"steps": 2, "tasks_per_step": 3}, evaluation={"every": 0})
    train(run)
    asked = [(one.purpose, len(one.tasks), one.group_size) for one in run.bandit.requests]
    assert asked == [("train", 3, 8), ("baseline", 3, 1)] * 2
    assert [purpose for _, purpose in run.recorded] == ["train", "train"]


def test_policy_is_unchanged_during_critic_warm_up(bandit: Make) -> None:
    critic = {**CRITIC, "learning_rate": 0.001, "warmup_steps": 2}
    run = bandit(algorithm={"advantage": "gae"}, critic=critic, trainer={"steps": 3}, evaluation={"every": 0})
    train(run)
    assert [run.logged[step]["updates"] for step in (1, 2, 3)] == [0.0, 0.0, 1.0]
    assert all(run.logged[step]["critic/gradient_norm"] > 0 for step in (1, 2, 3))
    assert run.bandit.synced == [0, 0, 0, 0, 1]  # twice at the start, and after every step


def test_resolved_algorithm_is_printed(bandit: Make) -> None:
    run = bandit(algorithm={"loss": "gspo"}, trainer={"steps": 1}, evaluation={"every": 0})
    train(run)
    (line,) = (line for line in run.said if line.startswith("algorithm"))
    assert "advantage grpo (normalise_by_std=true), loss gspo (clip_low=0.0003, clip_high=0.0004)" in line
    assert "seq-mean-token-mean, no KL" in line


def cut_and_resumed(bandit: Make, tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> Any:
    """Two steps with some tables, then the run that goes on to a third with others; not trained yet."""
    shared: dict[str, Any] = {"checkpoint": {"every": 1, "keep": 9}, "evaluation": {"every": 0}}
    train(bandit(trainer={"steps": 2, "tasks_per_step": 3}, **shared, **deepcopy(before)))
    rest = bandit(
        resume_from=tmp_path / "run/checkpoints/000002",
        trainer={"steps": 3, "tasks_per_step": 3},
        **shared,
        **deepcopy(after),
    )
    return rest


def told_before(run: Any) -> dict[str, str]:
    """Return the reasons of the problems with resuming a run by key."""
    found = resume_check.check(run, run.options("critic"), run.options("algorithm").kl)
    return {one.key: f"{one.text}\nfix: {one.fix}" for one in found}


def test_critic_added_on_resume_is_initialised(bandit: Make, tmp_path: Path) -> None:
    gae = {"algorithm": {"advantage": "gae"}, "critic": CRITIC}
    rest = cut_and_resumed(bandit, tmp_path, {}, gae)
    assert told_before(rest) == {}
    train(rest)
    assert any(line.startswith("critic    initialised anew") for line in rest.said)
    assert rest.logged[3]["critic/loss"] > 0


def test_different_critic_on_resume_is_rejected(bandit: Make, tmp_path: Path) -> None:
    gae = {"algorithm": {"advantage": "gae"}}
    rest = cut_and_resumed(bandit, tmp_path, {**gae, "critic": CRITIC}, {**gae, "critic": {"model": "head"}})
    assert list(told_before(rest)) == ["critic.model"]
    with pytest.raises(UserError) as caught:
        train(rest)
    assert caught.value.where == "critic.model"


@pytest.mark.parametrize(
    ("before", "expected"),
    [({}, 0.1), ({"coefficient": 0.1}, 0.1), ({**ADAPTIVE, "coefficient": 0.3}, 0.1), (ADAPTIVE, None)],
)
def test_adaptive_coefficient_is_restored_only_if_its_settings_match(
    bandit: Make, tmp_path: Path, before: dict[str, Any], expected: float | None
) -> None:
    rest = cut_and_resumed(bandit, tmp_path, {"algorithm": {"kl": before}}, {"algorithm": {"kl": ADAPTIVE}})
    train(rest)
    found = rest.logged[3]["kl/coefficient"]
    assert found == expected if expected is not None else found != pytest.approx(0.1, abs=1e-9)


def test_kl_term_added_on_resume_lacks_the_reference_after_the_warm_up(bandit: Make, tmp_path: Path) -> None:
    warmup, kl = {"warmup": {"steps": 1}}, {"algorithm": {"kl": {"coefficient": 0.1}}}
    rest = cut_and_resumed(bandit, tmp_path, warmup, {**warmup, **kl})
    assert list(told_before(rest)) == ["algorithm.kl.coefficient"]
    with pytest.raises(UserError) as caught:
        train(rest)
    assert caught.value.where == "algorithm.kl.coefficient"
    oldest = tmp_path / "run/checkpoints/000000/model"
    assert f"a copy of {oldest}" in (caught.value.fix or "")
    kept = shutil.copytree(oldest, tmp_path / "kept")
    named = bandit(
        resume_from=tmp_path / "run/checkpoints/000002",
        trainer={"steps": 3, "tasks_per_step": 3},
        evaluation={"every": 0},
        algorithm={"kl": {"coefficient": 0.1, "reference": str(kept)}},
        **warmup,
    )
    assert told_before(named) == {}
    train(named)
    assert named.logged[3]["kl/mean"] >= 0


@pytest.mark.parametrize("table", ["critic", "kl"])
def test_incompatible_second_model_is_rejected_before_the_warm_up(
    bandit: Make, qwen2: Make, model_folder: Path, tmp_path: Path, table: str
) -> None:
    small = tmp_path / "small"
    model = qwen2(tie_word_embeddings=True)
    model.resize_token_embeddings(16)
    model.save_pretrained(small)
    tokenizer = json.loads((model_folder / "tokenizer.json").read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: number for word, number in words.items() if number < 16}
    (small / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    kl = {"algorithm": {"kl": {"coefficient": 0.1, "reference": str(small)}}}
    tables = kl if table == "kl" else {"algorithm": {"advantage": "gae"}, "critic": {"model": str(small)}}
    run = bandit(warmup={"steps": 1}, **tables)
    with pytest.raises(UserError) as caught:
        train(run)
    assert caught.value.where == str(small)
    assert not any(line.startswith("warm-up") for line in run.said)
