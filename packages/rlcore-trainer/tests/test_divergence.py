"""Training stops at the first number that is not finite, and no checkpoint contains one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rlcore.errors import DataError, DivergenceError, EngineError, UserError
from rlcore.types import Demonstration, Message
from rlcore_trainer.algorithms.configured import selected_loss
from rlcore_trainer.algorithms.interface import LossInputs, LossOutput
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.finite import first_non_finite
from rlcore_trainer.supervised.trainer import SupervisedTrainer
from safetensors.torch import load_file, save_file
from test_supervised import Chats, chat

Make = Callable[..., Any]
FAR = 1e30
"""A learning rate after which the weights are finite and the next forward pass is not."""
OUT = 3e38
"""A learning rate after which the weights are not finite."""


def breaking(run: Any, *, after: int) -> Any:
    """Give a run a loss that is its own for the first ``after`` calls, and NaN from then on."""
    load, calls = run.load, itertools.count()
    loss = selected_loss(run)

    def broken(inputs: LossInputs, config: object) -> LossOutput:
        output = loss(inputs)
        return output if next(calls) < after else LossOutput(loss=output.loss * math.nan)

    run.load = lambda kind, id: broken if kind == "loss" else load(kind, id)
    return run


@pytest.fixture
def chats(model_folder: Path, tmp_path: Path) -> Make:
    """Makes a run of supervised training; keyword arguments are tables."""
    return lambda directory=None, **tables: Chats(
        model_folder, tmp_path / directory if directory else None, None, tables
    )


def assert_all_checkpoints_are_good(run: Path) -> None:
    """Assert that each of them can be loaded, which includes a forward pass."""
    for folder in (run / "checkpoints").glob("[0-9]*/model"):
        CausalLanguageModel.load(folder, dtype="float32", device=torch.device("cpu"))
    for link in ("best", "last"):
        assert not (run / "checkpoints" / link).is_symlink() or (run / "checkpoints" / link).is_dir()


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir() if path.name.isdigit())


# Supervised training


def diverged(run: Any, trainer: Callable[[Any], Any]) -> DivergenceError:
    with pytest.raises(DivergenceError) as caught:
        trainer(run).train()
    return caught.value


@pytest.mark.parametrize("every", [1, 20])
def test_supervised_training_stops_and_keeps_the_last_completed_step(chats: Make, tmp_path: Path, every: int) -> None:
    run = chats("run", trainer={"epochs": 9}, checkpoint={"every": every}, evaluation={"every": 0})
    trainer = SupervisedTrainer(run)
    weight = next(trainer.session.policy.module.parameters())
    weight.register_hook(lambda gradient: gradient * (math.inf if max(run.logged, default=0) == 3 else 1.0))
    with pytest.raises(DivergenceError) as caught:
        trainer.train()
    assert "at step 4" in caught.value.message
    assert checkpoints(tmp_path / "run")[-1] == "000003"
    assert caught.value.found == f"the last good checkpoint is {tmp_path / 'run/checkpoints/000003'}"
    assert_all_checkpoints_are_good(tmp_path / "run")


@pytest.mark.parametrize("every", [1, 20])
@pytest.mark.parametrize("rate", [FAR, OUT])
def test_weights_that_no_longer_compute_are_never_saved(chats: Make, tmp_path: Path, rate: float, every: int) -> None:
    run = chats("run", trainer={"learning_rate": rate}, checkpoint={"every": every}, evaluation={"every": 0})
    error = diverged(run, SupervisedTrainer)
    assert "at step 1" in error.message
    assert checkpoints(tmp_path / "run") == []
    assert error.found == "no checkpoint was written before"


def test_non_finite_evaluation_is_not_the_best(chats: Make, tmp_path: Path) -> None:
    run = chats("run", trainer={"learning_rate": FAR}, evaluation={"every": 1})
    error = diverged(run, SupervisedTrainer)
    assert "at step 1" in error.message
    assert not (tmp_path / "run/checkpoints/best").exists()


def test_model_with_nan_is_rejected_before_training(chats: Make, model_folder: Path) -> None:
    file = model_folder / "model.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[3] = math.nan
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(UserError) as caught:
        SupervisedTrainer(chats("run"))
    assert name in (caught.value.found or "")
    assert caught.value.where == str(model_folder)


# Reinforcement learning and its warm-up


def test_failing_engine_of_a_diverged_policy_is_reported_as_a_divergence(bandit: Make, tmp_path: Path) -> None:
    trainer = PolicyGradientTrainer(bandit("run", evaluation={"every": 0}))
    weight = trainer.session.policy.module.get_input_embeddings().weight

    def fail(*arguments: Any) -> None:
        weight.data[3] = math.nan
        raise EngineError("the model's logits are not finite")

    trainer.rollouts._sampler.collect = fail
    with pytest.raises(DivergenceError) as caught:
        trainer.train()
    assert "at the rollout of step 1" in caught.value.message


@pytest.mark.parametrize("rate", [FAR, OUT])
def test_reinforcement_learning_stops_when_its_weights_run_away(bandit: Make, tmp_path: Path, rate: float) -> None:
    run = bandit(trainer={"learning_rate": rate}, checkpoint={"every": 1}, evaluation={"every": 0})
    error = diverged(run, PolicyGradientTrainer)
    assert "at step 1" in error.message
    assert error.found == "no checkpoint was written before"
    assert checkpoints(tmp_path / "run") == []


@pytest.mark.parametrize("every", [1, 20])
@pytest.mark.parametrize("updates", [1, 2])
def test_nan_loss_stops_reinforcement_learning_at_its_step(
    bandit: Make, tmp_path: Path, updates: int, every: int
) -> None:
    run = bandit(
        trainer={"steps": 9, "updates_per_rollout": updates},
        checkpoint={"every": every},
        evaluation={"every": 0},
    )
    error = diverged(breaking(run, after=3 * updates), PolicyGradientTrainer)
    assert max(run.logged) == 3
    assert "the loss is nan at step 4" in error.message
    assert checkpoints(tmp_path / "run")[-1] == "000003"
    assert "checkpoints/000003" in (error.found or "")
    assert "trainer.learning_rate" in (error.fix or "")
    assert_all_checkpoints_are_good(tmp_path / "run")


def test_checkpoint_before_a_divergence_resumes_like_the_uninterrupted_run(bandit: Make, tmp_path: Path) -> None:
    tables: dict[str, Any] = {"checkpoint": {"every": 20}, "evaluation": {"every": 0}}
    whole = bandit("whole", trainer={"steps": 6}, **tables)
    PolicyGradientTrainer(whole).train()
    cut = bandit("cut", trainer={"steps": 6}, **tables)
    diverged(breaking(cut, after=3), PolicyGradientTrainer)
    rest = bandit("cut", resume_from=tmp_path / "cut/checkpoints/000003", trainer={"steps": 6}, **tables)
    PolicyGradientTrainer(rest).train()
    last = "checkpoints/000006/model/model.safetensors"
    expected, found = load_file(tmp_path / "whole" / last), load_file(tmp_path / "cut" / last)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_diverging_critic_stops_the_run(bandit: Make, tmp_path: Path) -> None:
    run = bandit(
        algorithm={"advantage": "gae"},
        critic={"model": "copy", "learning_rate": OUT},
        checkpoint={"every": 1},
        evaluation={"every": 0},
    )
    error = diverged(run, PolicyGradientTrainer)
    assert "optimizer.updates.critic" in error.message
    assert checkpoints(tmp_path / "run") == []


def test_diverging_warm_up_names_its_step_and_its_learning_rate(bandit: Make, tmp_path: Path) -> None:
    run = bandit(warmup={"steps": 5, "learning_rate": FAR}, evaluation={"every": 0})
    error = diverged(run, PolicyGradientTrainer)
    assert "warm-up step 2" in error.message
    assert "warmup.learning_rate" in (error.fix or "")
    assert checkpoints(tmp_path / "run") == []


def test_warm_up_that_ends_with_bad_weights_saves_nothing(bandit: Make, tmp_path: Path) -> None:
    run = bandit(warmup={"steps": 1, "learning_rate": OUT}, evaluation={"every": 0})
    error = diverged(run, PolicyGradientTrainer)
    assert "the end of the warm-up" in error.message
    assert checkpoints(tmp_path / "run") == []


# Demonstrations without an answer


def question(text: str) -> Demonstration:
    return Demonstration(messages=(Message(role="user", content=text),))


def test_conversation_without_an_assistant_message_is_named(chats: Make) -> None:
    with pytest.raises(DataError) as caught:
        SupervisedTrainer(chats(train=[chat("w1", "w2"), question("w3 w4")]))
    assert "conversation 2" in caught.value.message
    assert caught.value.found == "user, beginning 'w3 w4'"


def test_demonstration_without_an_assistant_message_stops_the_warm_up(bandit: Make) -> None:
    run = bandit(warmup={"steps": 3, "demonstrations_per_step": 2})

    def conversation(messages: Any, tools: Any) -> tuple[list[int], list[bool]]:
        return [3, 1, 2], [False, bool(messages), False]

    answer = Message(role="assistant", content="w1")
    run.demonstrations = lambda count, seed: [*[Demonstration(messages=(answer,))] * 3, Demonstration(messages=())]
    trainer = PolicyGradientTrainer(run)
    run.bandit.chat_format = type("Format", (), {"conversation": staticmethod(conversation)})
    with pytest.raises(DataError, match="demonstration 4"):
        trainer.train()


# The search itself


@given(
    shapes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
    place=st.integers(0, 100),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_single_bad_number_is_found_in_any_nesting(
    shapes: list[int], bad: float, place: int, dtype: torch.dtype
) -> None:
    tensors = [torch.ones(size, 2, dtype=dtype) for size in shapes]
    nested = {
        "state": {index: [one, 3, None, "text", torch.ones(2, dtype=torch.int64)] for index, one in enumerate(tensors)}
    }
    assert first_non_finite(nested) is None
    owner = place % len(tensors)
    if tensors[owner].numel():
        tensors[owner].view(-1)[place % tensors[owner].numel()] = bad
        assert first_non_finite(nested) == f"state.{owner}.0"
