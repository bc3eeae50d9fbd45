"""The conformance suite, and the promises of `ActionModel`."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from rl_plugin_small_network.config import SmallNetworkConfig
from rl_plugin_small_network.policy import SmallNetwork, build
from rlcore import UserError
from rlcore.testing import check_plugin
from rlcore_control.models.loading import load_action_model


class Room(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Box(-2, 2, (2,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "policy", (), 0, SmallNetworkConfig(width=8), environment=Room)
    return tmp_path / "policy"


def test_plugin_conforms() -> None:
    check_plugin("small-network")


def test_a_sampled_action_has_the_log_probability_that_is_trained(folder: Path) -> None:
    model = load_action_model(folder)
    assert isinstance(model, SmallNetwork)
    observation = {"state": torch.randn(4, 3)}
    decision = model.sample(observation, {"action": torch.randn(4, 1, 2)})
    assert decision.action_BHA.shape == (4, 1, 2)
    assert float(decision.action_BHA.detach().abs().max()) <= 2
    torch.testing.assert_close(model.evaluate(observation, decision.choice)[0], decision.logprob_B)


def test_a_saved_policy_is_read_again(folder: Path, tmp_path: Path) -> None:
    model, observation = load_action_model(folder), {"state": torch.randn(4, 3)}
    model.save(tmp_path / "again")
    assert torch.equal(load_action_model(tmp_path / "again").mode(observation), model.mode(observation))


@pytest.mark.parametrize("change", [{"width": 10**9}, {"width": 9}, {"spaces": 1}, {"spaces": {"state": -1}}])
def test_a_damaged_folder_is_refused(folder: Path, change: dict[str, Any]) -> None:
    described = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**described, **change}), encoding="utf-8")
    with pytest.raises(UserError):
        load_action_model(folder)
