from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import EngineError
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.controller.sync_check import compare, prove
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.numeric

Make = Callable[..., Any]


def engine_and_policy(bandit: Make, **tables: Any) -> tuple[Any, CausalLanguageModel]:
    """An engine that has read the policy's folder, and the policy."""
    run = bandit(directory=None, **tables)
    model = AutoModelForCausalLM.from_pretrained(run.model_folder()).eval()
    policy = CausalLanguageModel(model, run.model_folder())
    return run.sampler(policy), policy


def test_transferred_weights_agree_up_to_rounding(bandit: Make) -> None:
    engine, policy = engine_and_policy(bandit)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    policy.version = 3
    engine.update_weights(policy)
    assert compare(engine, policy) < 1e-5


def test_stale_weights_are_detected(bandit: Make) -> None:
    engine, policy = engine_and_policy(bandit)
    assert compare(engine, policy) < 1e-5
    with torch.no_grad():
        policy.module.get_output_embeddings().weight.mul_(3.0)
    with pytest.raises(EngineError, match="version 0 of the policy's weights"):
        compare(engine, policy)


def test_answer_of_another_version_is_detected(bandit: Make) -> None:
    engine, policy = engine_and_policy(bandit)
    policy.version = 1
    with pytest.raises(EngineError, match="version 0 of the weights, expected 1"):
        compare(engine, policy)


@pytest.mark.parametrize("forgotten", ["embed_tokens", "layers.0.self_attn.v_proj", "layers.1.mlp.down_proj", "layers"])
def test_incomplete_transfer_is_detected_before_training(bandit: Make, forgotten: str) -> None:
    run = bandit(directory=None, forgotten=forgotten, trainer={"learning_rate": 1e-9})
    with pytest.raises(EngineError, match="weight transfer"):
        PolicyGradientTrainer(run).train()
    assert run.logged == {}


def test_broken_transfer_is_not_detected_without_the_check(bandit: Make) -> None:
    run = bandit(directory=None, forgotten="layers", trainer={"learning_rate": 1e-9, "sync_check_every": 0})
    PolicyGradientTrainer(run).train()
    assert max(run.logged) == 4
    assert "sync/gap" not in run.logged[1]


def test_transfer_check_restores_the_policy_exactly(bandit: Make) -> None:
    engine, policy = engine_and_policy(bandit)
    before = {name: parameter.clone() for name, parameter in policy.module.named_parameters()}
    prove(engine, policy)
    assert all(torch.equal(parameter, before[name]) for name, parameter in policy.module.named_parameters())
    assert compare(engine, policy) < 1e-5


def test_failed_transfer_check_restores_the_policy_exactly(bandit: Make) -> None:
    engine, policy = engine_and_policy(bandit, forgotten="norm")
    engine.run.forgotten = "self_attn"
    before = {name: parameter.clone() for name, parameter in policy.module.named_parameters()}
    with pytest.raises(EngineError):
        prove(engine, policy)
    assert all(torch.equal(parameter, before[name]) for name, parameter in policy.module.named_parameters())


def test_check_does_not_affect_training(bandit: Make) -> None:
    def train(every: int) -> dict[str, Any]:
        trainer = PolicyGradientTrainer(bandit(directory=None, trainer={"sync_check_every": every}))
        trainer.train()
        return dict(trainer.session.policy.module.state_dict())

    checked, unchecked = train(1), train(0)
    assert all(torch.equal(checked[name], unchecked[name]) for name in checked)


def test_check_runs_at_the_configured_interval(bandit: Make) -> None:
    run = bandit(directory=None, trainer={"steps": 5, "sync_check_every": 2})
    PolicyGradientTrainer(run).train()
    assert [step for step in sorted(run.logged) if "sync/gap" in run.logged[step]] == [2, 4]


def test_rollout_is_retried_after_an_engine_failure(bandit: Make) -> None:
    def train(**tables: Any) -> tuple[Any, dict[str, Any]]:
        run = bandit(directory=None, evaluation={"every": 0}, **tables)
        trainer = PolicyGradientTrainer(run)
        trainer.train()
        return run, dict(trainer.session.policy.module.state_dict())

    run, after = train(engine_fails=lambda request: request == 2)
    _, expected = train()
    assert all(torch.equal(after[name], expected[name]) for name in expected)
    assert any("the engine died" in line for line in run.said)


def test_repeatedly_failing_engine_ends_the_run_with_a_checkpoint(bandit: Make, tmp_path: Path) -> None:
    run = bandit(engine_fails=lambda request: request >= 3, evaluation={"every": 0}, checkpoint={"every": 0})
    with pytest.raises(EngineError, match="the engine died"):
        PolicyGradientTrainer(run).train()
    progress = json.loads((tmp_path / "run/checkpoints/last/trainer.json").read_text(encoding="utf-8"))["progress"]
    assert progress["step"] == 2
    assert run.bandit.closed


def test_failed_transfer_after_an_update_leaves_a_checkpoint(bandit: Make, tmp_path: Path) -> None:
    tables: dict[str, Any] = {"evaluation": {"every": 0}, "checkpoint": {"every": 0}}
    whole = PolicyGradientTrainer(bandit(directory="whole", **tables))
    whole.train()
    cut = bandit(
        directory="cut", sync_fails=lambda transfer: transfer == 2 + 2, **tables
    )  # two verify the transfer, two follow steps
    with pytest.raises(EngineError, match="did not take the weights"):
        PolicyGradientTrainer(cut).train()
    assert sorted(cut.logged) == [1, 2]
    rest = bandit(directory="cut", resume_from=tmp_path / "cut/checkpoints/000002", **tables)
    resumed = PolicyGradientTrainer(rest)
    resumed.train()
    assert sorted(rest.logged) == [3, 4]
    expected = whole.session.policy.module.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.session.policy.module.state_dict().items())
