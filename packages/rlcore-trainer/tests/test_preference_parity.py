"""Losses of preferences, and whole steps of both trainers, equal TRL's on stored tensors in float64.

``tests/references/trl/preference_outputs.py`` writes the tensors with TRL's own trainers.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.types import LossMask, TokenIds
from rlcore_trainer.algorithms.preferences.dpo import dpo
from rlcore_trainer.algorithms.preferences.interface import PreferenceInputs
from rlcore_trainer.batching.sequence import TrainingSequence
from rlcore_trainer.config import PreferenceTrainerConfig
from rlcore_trainer.distributed.adamw import AdamW
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategies.single import SingleProcess, SingleProcessConfig
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from rlcore_trainer.policy.forward import PackedForward
from rlcore_trainer.preferences.data import Pair, scored
from rlcore_trainer.preferences.learner import PairLearner, PreferenceObjective, RankLearner, ScoreObjective
from rlcore_trainer.preferences.reward_model import RewardModel
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

REFERENCES = Path(__file__).parents[3] / "tests/references"
sys.path.insert(0, str(REFERENCES))

pytest.importorskip("parity_preferences", reason="the stored tensors of TRL are only in a clone of the repository")
import parity_preferences as parity  # noqa: E402

GOLDEN = load_file(REFERENCES / "golden/preferences.safetensors")
TOLERANCE = 1e-6


@pytest.mark.parametrize("line", parity.LINES, ids=lambda line: line.name)
@pytest.mark.parametrize("seed", [1, 2])
def test_loss_and_gradient_equal_those_of_trl(line: parity.Line, seed: int) -> None:
    case = {name: GOLDEN[f"logprobs/{seed}/{name}"] for name in ("mask", "logprobs", "reference")}
    leaf = case["logprobs"].clone().requires_grad_()
    sums, lengths = (leaf * case["mask"]).sum(dim=1).chunk(2), case["mask"].sum(dim=1).double().chunk(2)
    references = ((case["reference"] * case["mask"]).sum(dim=1) * line.referenced).chunk(2)
    name = line.id.replace("-", "_")
    loss = getattr(importlib.import_module(f"rlcore_trainer.algorithms.preferences.{name}"), name)
    inputs = PreferenceInputs(
        chosen_P=sums[0],
        rejected_P=sums[1],
        reference_chosen_P=references[0],
        reference_rejected_P=references[1],
        chosen_lengths_P=lengths[0],
        rejected_lengths_P=lengths[1],
    )
    loss_P = loss.configured(loss.Config(**line.ours))(inputs)
    loss_P.mean().backward()
    tolerance = TOLERANCE if line.id in parity.FLOAT32 else 1e-12
    expected = GOLDEN[f"logprobs/{seed}/{line.name}/value"].double()
    assert float(loss_P.mean().detach() - expected) == pytest.approx(0, abs=tolerance)
    assert leaf.grad is not None
    torch.testing.assert_close(
        leaf.grad, GOLDEN[f"logprobs/{seed}/{line.name}/gradient"].double(), rtol=0, atol=tolerance
    )


def pairs() -> list[Pair]:
    """The batch of the steps."""
    batch = parity.step_batch()

    def sequence(row: int) -> TrainingSequence:
        length = int(batch["attention"][row].sum())
        mask = batch["completion"][row, :length].bool().tolist()
        ids = TokenIds(batch["ids"][row, :length].tolist())
        return TrainingSequence(token_ids=ids, loss_mask=LossMask(mask), prompt_length=mask.index(True))

    count = len(batch["margin"])
    return [
        Pair(chosen=sequence(row), rejected=sequence(row + count), margin=float(batch["margin"][row]))
        for row in range(count)
    ]


def step(policy: Any, objective: Any, batch: list[Pair], known: list[tuple[float, float]], budget: int) -> Any:
    """The metrics of a step, and the gradients by name."""
    found: dict[str, Tensor] = {}

    class Kept(AdamW):
        def step(self, learning_rate: float, max_gradient_norm: float) -> tuple[float, bool]:
            named = policy.module.named_parameters()
            found.update({name: one.grad.clone() for name, one in named if one.grad is not None})
            return 0.0, False

    class Keeping(SingleProcess):
        def optimise(self, model: nn.Module, **settings: Any) -> AdamW:
            return Kept(model, **settings)

    strategy = Keeping(SingleProcessConfig())
    ranks = Ranks(strategy.processes)
    RankLearner(TrainedPolicy(policy, strategy, PreferenceTrainerConfig()), objective).offer(ranks)
    metrics, _ = PairLearner(ranks, budget).learn(batch, known, rate=0.0, max_gradient_norm=1.0)
    return metrics, found


def loaded(kind: Any, name: str) -> Any:
    prefix = f"step/{name}/weight/"
    model = kind(Qwen2Config(**parity.MODEL)).double()  # type: ignore[arg-type]
    model.load_state_dict({key.removeprefix(prefix): one for key, one in GOLDEN.items() if key.startswith(prefix)})
    return model


def assert_equal(name: str, metrics: dict[str, float], gradients: dict[str, Tensor]) -> None:
    assert metrics["loss"] == pytest.approx(float(GOLDEN[f"step/{name}/loss"]), abs=TOLERANCE)
    prefix = f"step/{name}/gradient/"
    expected = {key.removeprefix(prefix): one for key, one in GOLDEN.items() if key.startswith(prefix)}
    assert gradients.keys() == expected.keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[key], rtol=0, atol=TOLERANCE, msg=key)


@pytest.mark.parametrize("budget", [1, 14, 4096])
def test_step_of_dpo_has_the_loss_and_the_gradient_of_trl(budget: int) -> None:
    """Also when each pair is a micro-batch. TRL averages the likelihood of chosen answers over tokens, and so do we."""
    chosen, rejected = parity.step_batch()["reference"].chunk(2)
    known = list(zip(chosen.tolist(), rejected.tolist(), strict=True))
    model = loaded(Qwen2ForCausalLM, "dpo")
    loss = dpo.configured(dpo.Config(beta=0.3))  # type: ignore[attr-defined]
    objective = PreferenceObjective(loss, sft=0.2, beta=0.3)
    metrics, gradients = step(CausalLanguageModel(model), objective, pairs(), known, budget)
    assert_equal("dpo", metrics, gradients)
    assert metrics["preference/margin"] == pytest.approx(metrics["preference/chosen"] - metrics["preference/rejected"])


@pytest.mark.parametrize("budget", [1, 4096])
def test_step_of_a_reward_model_has_the_loss_and_the_gradient_of_trl(budget: int) -> None:
    model = loaded(Qwen2ForSequenceClassification, "reward")
    batch = [Pair(chosen=scored(one.chosen), rejected=scored(one.rejected), margin=one.margin) for one in pairs()]
    known = [(one.margin, one.margin) for one in batch]
    policy = RewardModel(model, Path(), forward=PackedForward())
    metrics, gradients = step(policy, ScoreObjective(center=0.05), batch, known, budget)
    assert_equal("reward", metrics, gradients)
