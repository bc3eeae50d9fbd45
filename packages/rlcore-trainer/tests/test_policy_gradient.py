from __future__ import annotations

import errno
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rlcore.errors import DataError, UserError, WriteError
from rlcore_trainer.algorithms.config import KlConfig
from rlcore_trainer.checkpoints import checkpoint
from rlcore_trainer.checks import resume_check
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.learner.critic_config import CriticConfig
from transformers import AutoModelForCausalLM

Make = Callable[..., Any]
ROLLOUT_NAMES = {
    "reward/mean", "reward/good", "accuracy", "tokens/sampled", "turns/mean", "stop/done", "not_scored",
    "tools/calls", "tools/errors", "tools/calculator", "info/beauty", "groups/equal",
    "groups/same_answers", "groups/contradictory", "answers/same",
}  # fmt: skip
UPDATE_NAMES = {
    "entropy/mean", "loss/policy", "loss/total", "clip/fraction", "gradient_norm", "learning_rate", "tokens/trained",
    "data/epoch", "updates", "logprob_gap/max", "logprob_gap/mean",
    "advantage/mean", "advantage/std", "clip/low", "clip/high", "ratio/max", "kl/old", "rollout_is/effective",
    "rollout_is/factor", "rollout_is/high", "rollout_is/kl", "rollout_is/low", "rollout_is/ratio/max",
    "sync/gap", "time/rollout_s", "time/update_s", "time/sync_s", "time/step_s",
    "memory/rollout_gib", "memory/update_gib", "memory/sync_gib",
}  # fmt: skip
EVALUATION_NAMES = {"evaluation/accuracy", "evaluation/reward", "evaluation/not_scored", "time/evaluation_s"}


def good_probability(model: Any) -> float:
    """Mean probability of the good token against the bad one over the held-out tasks."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[3, 4 + i] for i in range(3)])).logits[:, -1]
    return float(logits[:, [1, 2]].softmax(-1)[:, 0].mean())


def train(run: Any) -> Any:
    """The trained model."""
    trainer = PolicyGradientTrainer(run)
    trainer.train()
    return trainer.session.policy.module


def timeless(logged: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    return {
        step: {name: value for name, value in metrics.items() if not name.startswith(("time/", "memory/"))}
        for step, metrics in logged.items()
    }


def learn(bandit: Make, **algorithm: Any) -> tuple[Any, float]:
    run = bandit(
        directory=None,
        trainer={"steps": 25, "learning_rate": 0.01, "tasks_per_step": 4},
        algorithm=algorithm,
        evaluation={"every": 25, "success": 1.0},
        rollout={"group_size": 8},
    )
    return run, good_probability(train(run))


def test_policy_learns_what_is_rewarded(bandit: Make) -> None:
    run, probability = learn(bandit)
    assert run.logged[1]["accuracy"] < 0.8
    assert probability > 0.95
    assert run.logged[25]["evaluation/accuracy"] == 1.0


def mean_gradient(bandit: Make, **algorithm: Any) -> tuple[Any, torch.Tensor]:
    """The mean gradient over some steps of a policy that hardly moves, as the optimiser averages it."""
    settings = {"steps": 15, "learning_rate": 1e-9, "betas": (0.99, 0.999), "max_gradient_norm": 1e9}
    run = bandit(directory=None, trainer=settings, algorithm=algorithm, evaluation={"every": 0})
    trainer = PolicyGradientTrainer(run)
    trainer.train()
    averages = trainer.session.trained.state()["moments"]
    return run, torch.cat([one["exp_avg"].flatten() for one in averages])


@pytest.mark.slow
def test_policy_learns_nothing_from_shuffled_rewards(bandit: Make) -> None:
    """AdamW walks as far on noise as on a signal, so it is the gradients that are compared."""
    _, honest = mean_gradient(bandit)
    _, shuffled = mean_gradient(bandit, shuffle_rewards=True)
    assert shuffled.norm() > 0
    assert abs(float(shuffled @ honest / honest.square().sum())) < 0.2


@pytest.mark.slow
def test_strong_kl_term_keeps_the_policy_at_the_reference(bandit: Make) -> None:
    start = good_probability(AutoModelForCausalLM.from_pretrained(bandit().model_folder()))
    run, probability = learn(bandit, kl={"estimator": "k3", "coefficient": 50.0})
    assert probability < start + 0.2
    assert 0 <= run.logged[1]["kl/mean"] < 1e-9
    assert run.logged[25]["kl/mean"] > 0


def test_every_metric_has_its_name(bandit: Make) -> None:
    run = bandit(algorithm={"kl": {"coefficient": 0.1}})
    train(run)
    assert set(run.logged[0]) == EVALUATION_NAMES
    names = ROLLOUT_NAMES | UPDATE_NAMES | {"kl/mean", "kl/coefficient"}
    assert set(run.logged[1]) - {"groups/equal"} == names - {"groups/equal"}
    assert set(run.logged[2]) >= EVALUATION_NAMES
    assert run.logged[1]["tokens/sampled"] == 4 * 8
    assert run.logged[1]["tools/calls"] == 2.0
    assert run.logged[1]["logprob_gap/max"] >= 0


def test_evaluation_runs_before_the_first_and_after_the_last_step(bandit: Make) -> None:
    run = bandit(trainer={"steps": 5}, evaluation={"every": 2, "tasks": 2, "samples": 3})
    train(run)
    assert [step for step, purpose in run.recorded if purpose == "evaluation"] == [0, 2, 4, 5]
    request = next(r for r in run.bandit.requests if r.purpose == "evaluation")
    assert (len(request.tasks), request.group_size, request.sampling["temperature"]) == (2, 3, 0.0)


@pytest.mark.slow
def test_evaluation_does_not_affect_training(bandit: Make) -> None:
    with_evaluation, without = bandit(directory=None), bandit(directory=None, evaluation={"every": 0})
    one, other = train(with_evaluation).state_dict(), train(without).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not any(purpose == "evaluation" for _, purpose in without.recorded)


def test_engine_receives_the_weights_of_every_update(bandit: Make) -> None:
    run = bandit(directory=None, evaluation={"every": 0}, trainer={"updates_per_rollout": 2, "steps": 3})
    train(run)
    assert run.bandit.synced == [0, 0, 2, 4, 6]  # twice at the start: once to see that a transfer changes anything
    assert run.bandit.closed
    assert any("2 optimiser updates, off-policy after the first" in line for line in run.said)


def test_unscored_trajectories_are_counted_and_not_trained_on(bandit: Make) -> None:
    run = bandit(directory=None, fails=lambda task, sibling: sibling % 2 == 1)
    train(run)
    assert run.logged[1]["not_scored"] == 16
    assert run.logged[1]["failure/reward"] == 16
    assert run.logged[1]["tokens/trained"] <= 16
    assert math.isfinite(run.logged[1]["loss/total"])


def test_run_without_scores_in_its_first_rollout_is_rejected(bandit: Make) -> None:
    run = bandit(fails=lambda task, sibling: True)
    with pytest.raises(UserError) as caught:
        train(run)
    assert caught.value.message.startswith("the first evaluation")
    assert caught.value.found == "3 times reward: the reward failed"
    assert run.saved == []
    assert run.bandit.closed


def test_step_without_scores_ends_the_run_and_saves_completed_steps(bandit: Make) -> None:
    run = bandit(trainer={"steps": 9}, fails=lambda task, sibling: max(run.logged, default=0) >= 3)
    with pytest.raises(UserError) as caught:
        train(run)
    assert caught.value.message.startswith("step 4")
    assert run.saved[-1] == 3
    assert max(run.logged) == 3


def test_later_evaluation_without_scores_does_not_end_the_run(bandit: Make) -> None:
    run = bandit(fails=lambda task, sibling: run.bandit.requests[-1].purpose == "evaluation" and 1 in run.logged)
    train(run)
    assert "evaluation/accuracy" not in run.logged[4]
    assert run.logged[4]["evaluation/not_scored"] == 3


def test_step_without_comparable_trajectories_has_no_update(bandit: Make) -> None:
    run = bandit(directory=None, fails=lambda task, sibling: sibling >= 1)
    start = AutoModelForCausalLM.from_pretrained(run.model_folder()).state_dict()
    model = train(run)
    assert run.logged[4]["updates"] == 0
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())


def test_equal_rewards_give_no_update(bandit: Make) -> None:
    run = bandit(directory=None, rollout={"group_size": 1})
    run.fails = lambda task, sibling: False
    train(run)
    assert run.logged[1]["updates"] == 1  # a group of one is compared with zero
    alike = bandit(directory=None, trainer={"learning_rate": 1e-9, "steps": 1}, rollout={"group_size": 2})
    train(alike)
    assert alike.logged[1]["groups/equal"] > 0


def test_resumed_run_equals_an_uninterrupted_run(bandit: Make, tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "trainer": {"steps": 6, "schedule": "cosine", "updates_per_rollout": 2, "lr_warmup_steps": 2},
        "algorithm": {"kl": {"coefficient": 0.1}, "entropy": 0.01},
        "warmup": {"steps": 2, "demonstrations_per_step": 2},
        "checkpoint": {"every": 3},
    }
    whole = bandit(directory="whole", **{k: dict(v) for k, v in tables.items()})
    expected = train(whole).state_dict()
    cut = bandit(directory="cut", stop_after=3, **{k: dict(v) for k, v in tables.items()})
    train(cut)
    assert max(cut.logged) == 3
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/000003", **tables)
    found = train(rest).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert timeless(cut.logged) | timeless(rest.logged) == timeless(whole.logged)
    assert min(rest.logged) == 4


def test_interrupted_warm_up_resumes_where_it_stopped(bandit: Make, tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "trainer": {"steps": 2},
        "algorithm": {"kl": {"coefficient": 0.1}},
        "warmup": {"steps": 5, "demonstrations_per_step": 2},
        "checkpoint": {"every": 1},
    }
    whole = bandit(directory="whole", **{k: dict(v) for k, v in tables.items()})
    expected = train(whole).state_dict()
    cut = bandit(directory="cut", stop_after=0, **{k: dict(v) for k, v in tables.items()})
    train(cut)
    progress = json.loads((tmp_path / "cut/checkpoints/last/trainer.json").read_text())["progress"]
    assert (progress["step"], progress["warmup"], progress["updates"]) == (0, 1, 1)
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/000000", **tables)
    assert not list(resume_check.check(rest, CriticConfig(), KlConfig(coefficient=0.1)))
    found = train(rest).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert timeless(rest.logged) == timeless(whole.logged)


@pytest.mark.slow
def test_stop_saves_the_last_complete_step(bandit: Make, tmp_path: Path) -> None:
    run = bandit(stop_after=1, checkpoint={"every": 0}, evaluation={"every": 0})
    train(run)
    assert run.saved == [1]
    assert json.loads((tmp_path / "run/checkpoints/last/trainer.json").read_text())["progress"]["step"] == 1


def test_run_without_a_directory_writes_nothing(bandit: Make, tmp_path: Path) -> None:
    run = bandit(directory=None)
    train(run)
    assert run.saved == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


@pytest.mark.slow
def test_best_and_newest_checkpoints_are_kept(bandit: Make, tmp_path: Path) -> None:
    run = bandit(
        trainer={"steps": 8, "learning_rate": 1e-9}, evaluation={"every": 8}, checkpoint={"every": 1, "keep": 2}
    )
    train(run)
    folder = tmp_path / "run/checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["000007", "000008", "best", "last"]
    assert (folder / "best").resolve().name == (folder / "last").resolve().name == "000008"


@pytest.mark.slow
def test_warm_up_learns_demonstrations_and_writes_a_checkpoint(bandit: Make, tmp_path: Path) -> None:
    run = bandit(
        trainer={"steps": 1, "learning_rate": 1e-9},
        warmup={"steps": 20, "learning_rate": 0.01},
        checkpoint={"every": 5},
    )
    start = good_probability(AutoModelForCausalLM.from_pretrained(run.model_folder()))
    assert good_probability(train(run)) > max(0.9, start)
    assert run.saved[0] == 0
    assert any("warm-up   20/20" in line for line in run.said)


@pytest.mark.slow
def test_saved_model_is_a_hugging_face_folder_with_its_tokenizer(bandit: Make, tmp_path: Path) -> None:
    model = train(bandit())
    folder = tmp_path / "run/checkpoints/last/model"
    assert (folder / "tokenizer.json").is_file()
    loaded = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())


@pytest.mark.slow
def test_separate_reference_is_loaded(bandit: Make, tmp_path: Path) -> None:
    first = bandit(directory="first", trainer={"steps": 2, "learning_rate": 0.05})
    train(first)
    reference = str(tmp_path / "first/checkpoints/last/model")
    run = bandit(directory=None, trainer={"steps": 1}, algorithm={"kl": {"coefficient": 0.1, "reference": reference}})
    train(run)
    assert run.logged[1]["kl/mean"] > 1e-4


@pytest.mark.slow
def test_gradient_checkpointing_and_small_batches_do_not_change_results(bandit: Make) -> None:
    one = train(bandit(directory=None)).state_dict()
    other = train(bandit(directory=None, trainer={"gradient_checkpointing": True})).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_gradient_checkpointing_does_not_change_a_critic_from_a_folder(bandit: Make, model_folder: Path) -> None:
    tables = {"algorithm": {"advantage": {"id": "gae"}}, "critic": {"model": str(model_folder)}}
    one = train(bandit(directory=None, **tables)).state_dict()
    other = train(bandit(directory=None, trainer={"gradient_checkpointing": True}, **tables)).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_run_ends_after_its_passes_over_the_tasks(bandit: Make) -> None:
    run = bandit(directory=None, trainer={"steps": "2 passes"})
    train(run)
    tasks, per_step = len(run.dataset.tasks("train")), run.options("trainer").tasks_per_step
    assert max(run.logged) == math.ceil(2 * tasks / per_step)


@pytest.mark.parametrize("resumed", [False, True])
def test_trainer_is_complete_before_training(bandit: Make, tmp_path: Path, resumed: bool) -> None:
    if resumed:
        train(bandit(trainer={"steps": 1}, checkpoint={"every": 1}))
    start = tmp_path / "run/checkpoints/000001" if resumed else None
    algorithm = {"advantage": "gae", "kl": {"coefficient": 0.1}}
    warmup = {} if resumed else {"steps": 1}
    run = bandit(resume_from=start, critic={"model": "copy"}, algorithm=algorithm, warmup=warmup)
    trainer = PolicyGradientTrainer(run)
    session = trainer.session
    parts: list[object] = [trainer, session, session.policy, session.trained, trainer.rollouts, trainer.update]
    before = [set(vars(part)) for part in parts]
    trainer.train()
    assert [set(vars(part)) for part in parts] == before


def test_reference_is_the_policy_after_the_warm_up(bandit: Make) -> None:
    run = bandit(warmup={"steps": 10, "learning_rate": 0.01}, algorithm={"kl": {"coefficient": 0.1}})
    train(run)
    assert run.logged[1]["kl/mean"] < 1e-9
    assert run.logged[4]["kl/mean"] > 0


def test_warm_up_without_demonstrations_is_rejected(bandit: Make) -> None:
    run = bandit(warmup={"steps": 2, "demonstrations_per_step": 3})
    run.dataset = SimpleNamespace(tasks=run.tasks)
    with pytest.raises(DataError, match="the warm-up needs 6 demonstrations") as caught:
        train(run)
    assert caught.value.where == "warmup.steps"


def test_too_few_tasks_are_rejected_before_loading(bandit: Make) -> None:
    run = bandit(trainer={"tasks_per_step": 11})
    with pytest.raises(UserError, match=r"trainer\.tasks_per_step=10"):
        PolicyGradientTrainer(run)


def test_best_step_between_regular_checkpoints_is_saved(bandit: Make, tmp_path: Path) -> None:
    run = bandit(trainer={"steps": 5, "learning_rate": 0.03}, evaluation={"every": 2}, checkpoint={"every": 5})
    train(run)
    best = json.loads((tmp_path / "run/checkpoints/best/trainer.json").read_text(encoding="utf-8"))["progress"]
    evaluated = {step: (m["evaluation/accuracy"], step) for step, m in run.logged.items() if "evaluation/accuracy" in m}
    assert best["step"] == max(evaluated, key=lambda step: evaluated[step])
    assert 2 in run.saved


def test_training_continues_while_a_checkpoint_is_completed(bandit: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bandit(trainer={"steps": 4}, evaluation={"every": 0}, checkpoint={"every": 2})
    continued, whole = threading.Event(), checkpoint.write_manifest

    def log(step: int, metrics: dict[str, float]) -> None:
        run.logged[step] = metrics
        if step == 3:
            assert not run.saved
            continued.set()

    def slow(folder: Path, step: int) -> None:
        assert continued.wait(timeout=60)
        whole(folder, step)

    monkeypatch.setattr(run, "log", log)
    monkeypatch.setattr(checkpoint, "write_manifest", slow)
    train(run)
    assert run.saved == [2, 4]


def test_checkpoint_that_cannot_be_completed_ends_the_run(
    bandit: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bandit(trainer={"steps": 9}, evaluation={"every": 0}, checkpoint={"every": 2})
    whole = checkpoint.write_manifest

    def full(folder: Path, step: int) -> None:
        if step == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(folder, step)

    monkeypatch.setattr(checkpoint, "write_manifest", full)
    with pytest.raises(WriteError, match="the checkpoint cannot be written"):
        train(run)
    assert (run.saved, max(run.logged) <= 6) == ([2], True)
    assert sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir()) == ["000002", "last"]
