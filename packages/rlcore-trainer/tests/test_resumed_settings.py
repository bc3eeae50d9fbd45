"""Settings that change when a run is resumed: they apply, or they are rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_trainer.checks import resume_check
from rlcore_trainer.config import WarmupConfig
from rlcore_trainer.controller.policy_gradient import PolicyGradientTrainer
from rlcore_trainer.distributed.adamw import AdamW
from torch import nn

Make = Callable[..., Any]
SHORT: dict[str, Any] = {"trainer": {"steps": 1}, "checkpoint": {"every": 1}, "evaluation": {"every": 0}}


def updated(optimisation: AdamW, layer: nn.Linear) -> torch.Tensor:
    layer(torch.ones(1, 3)).sum().backward()
    optimisation.step(0.1, 1.0)
    return layer.weight.detach().float().clone()


def prepared(state: Any = None, dtype: torch.dtype = torch.float32, **settings: Any) -> tuple[AdamW, nn.Linear]:
    """An optimiser after one update, or restored from the state of one."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2, dtype=dtype)
    optimisation = AdamW(layer, **{"betas": (0.9, 0.999), "weight_decay": 0.0, **settings})
    if state is not None:
        optimisation.restore(state)
    return optimisation, layer


@pytest.mark.parametrize("settings", [{"weight_decay": 0.5}, {"betas": (0.1, 0.999)}, {"betas": (0.9, 0.5)}])
def test_changed_settings_of_the_optimiser_apply_after_a_resume(settings: dict[str, Any]) -> None:
    first, layer = prepared()
    updated(first, layer)
    same, changed = (updated(*prepared(first.state(), **chosen)) for chosen in ({}, settings))
    assert not torch.equal(same, changed)


def test_another_precision_after_a_resume_is_rejected() -> None:
    first, _ = prepared()
    with pytest.raises(UserError) as caught:
        prepared(first.state(), dtype=torch.bfloat16)
    assert caught.value.where == "model.dtype"


def test_the_warm_up_of_a_resumed_run_is_fixed() -> None:
    assert set(WarmupConfig.model_fields) == WarmupConfig.FIXED


@pytest.mark.parametrize("there", [True, False])
def test_critic_from_another_folder_is_rejected_while_the_first_one_exists(
    bandit: Make, model_folder: Path, tmp_path: Path, there: bool
) -> None:
    gae: dict[str, Any] = {**SHORT, "algorithm": {"advantage": "gae"}}
    PolicyGradientTrainer(bandit(critic={"model": "copy"}, **gae)).train()
    recorded = model_folder if there else tmp_path / "moved"
    (tmp_path / "run/config.toml").write_text(f"[critic]\nmodel = {json.dumps(str(recorded))}\n", encoding="utf-8")
    rest = bandit(resume_from=tmp_path / "run/checkpoints/000001", critic={"model": "copy"}, **gae)
    rest.resolved.origin = lambda path: "a test"
    found = resume_check.check(rest, rest.options("critic"), rest.options("algorithm").kl)
    assert [one.key for one in found] == (["critic.model"] if there else [])
