"""Preference training and a reward model improve the true score, on three seeds, and not with random labels."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from finished_runs import metrics, succeeded
from preloaded import rlcore_command

SFT = ("trainer.rollouts=false", "evaluation.every=0", "checkpoint.every=0", "trainer.held_out=0")
RANDOM = ("data.swapped=0.5",)
"""Labels that say nothing."""
TRUE = "evaluation/reward/math-numeric-equal"
"""The true score of held-out problems, which the policy is not trained on."""


def run(folder: Path, name: str, *arguments: str) -> list[dict[str, float]]:
    """The evaluations of a run."""
    done = succeeded(rlcore_command(["run", "-p", "gsm8k-tools", f"name={name}", *arguments], folder, timeout_s=1200))
    if "reward-model" in arguments:  # the recipe
        assert "reward.0.id=reward-model reward.0.model=" in done.stdout
    return [row for row in metrics(folder / "runs" / name) if any(key.startswith("evaluation/") for key in row)]


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dpo_improves_the_policy_and_random_labels_do_not(seed: int, tmp_path: Path) -> None:
    """The policy that imitates mostly wrong calls learns from pairs which call is right."""
    run(tmp_path, "sft", "-r", "sft", f"seed={seed}", *SFT)
    given = ("-r", "dpo", "model=runs/sft", f"seed={seed}", "checkpoint.every=0")
    found = {name: run(tmp_path, name, *given, *labels) for name, labels in (("dpo", ()), ("control", RANDOM))}
    first, last, control = found["dpo"][0], found["dpo"][-1], found["control"][-1]
    assert first["evaluation/preference/accuracy"] == pytest.approx(0.5, abs=0.05)
    assert last["evaluation/preference/accuracy"] > 0.75
    # The likelihood term prefers right calls also with random labels: a problem has one of them, and many wrong ones.
    assert control["evaluation/preference/accuracy"] < last["evaluation/preference/accuracy"]
    assert last["evaluation/accuracy"] > first["evaluation/accuracy"] + 0.3
    assert control["evaluation/accuracy"] < last["evaluation/accuracy"] / 2


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_score_of_a_reward_model_improves_the_true_accuracy(seed: int, tmp_path: Path) -> None:
    """The default recipe with the score in place of the true reward, which is only logged.

    The control shuffles the scores. A reward model of random labels is no control: its loss stays that of chance, but
    its scores have an order, however small they are, and GRPO divides by their standard deviation.
    """
    learnt, loss = {}, {}
    for name, labels in (("scorer", ()), ("random", RANDOM)):
        held = run(tmp_path, name, "-r", "reward-model", f"seed={seed}", *labels)
        learnt[name], loss[name] = held[-1]["evaluation/preference/accuracy"], held[-1]["evaluation/loss"]
    assert learnt["scorer"] > 0.8
    assert loss["scorer"] < 0.4
    assert loss["random"] > math.log(2) - 0.01
    true = ("reward.1.id=math-numeric-equal", "reward.1.weight=0", "checkpoint.every=0")
    found = {}
    for name, changes in (("policy", ()), ("control", ("algorithm.shuffle_rewards=true",))):
        given = ("reward.0.id=reward-model", "reward.0.model=runs/scorer", f"seed={seed}")
        found[name] = [row[TRUE] for row in run(tmp_path, name, *given, *true, *changes)]
    print(f"seed {seed}: pairs {learnt}, losses {loss}, true accuracy {found}")
    assert found["policy"][0] < 0.1
    assert found["policy"][-1] > 0.8
    assert found["control"][-1] < 0.3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pairs_train_a_policy_and_a_reward_model(tmp_path: Path) -> None:
    """The recipes in a few steps: a resumed run is the same, and a policy is trained on the score."""
    small = (
        "data.pairs=32",
        "trainer.pairs_per_step=8",
        "trainer.epochs=1",
        "evaluation.every=0",
        "checkpoint.every=1",
    )
    tiny = ("model.builder.layers=1", "seed=3")
    run(tmp_path, "scorer", "-r", "reward-model", *small, *tiny)
    run(tmp_path, "dpo", "-r", "dpo", "trainer.rollouts=false", *small, *tiny)
    short = ("warmup.steps=2", "trainer.steps=1", "trainer.tasks_per_step=2", "evaluation.every=0", *tiny)
    run(tmp_path, "policy", "reward.0.id=reward-model", "reward.0.model=runs/scorer", *short)
    assert metrics(tmp_path / "runs/policy")[-1]["not_scored"] == 0
