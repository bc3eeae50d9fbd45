"""Registered Gymnasium environments as control environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from rl_plugin_gymnasium.control import ControlSeeds, GymnasiumControl
from rl_plugin_gymnasium.control_config import ControlDataConfig, ControlEnvironmentConfig
from rlcore.errors import ConfigError, UserError
from rlcore.plugins.registry import Registry
from rlcore.session.plan import RunPlan
from rlcore.specs import EnvironmentSpec
from rlcore.transport.hosting import HostedEnvironments, interpreters


class Batched(gymnasium.Env[Any, Any]):
    """Returns what ManiSkill returns: arrays with a leading axis, nested dicts and a success flag."""

    num_envs = 1
    single_action_space = spaces.Box(-1, 1, (2,))
    single_observation_space = spaces.Dict(
        {
            "agent": spaces.Dict({"qpos": spaces.Box(-1, 1, (3,))}),
            "sensor": spaces.Box(0, 255, (4, 6, 3), np.uint8),
        }
    )
    observation_space = spaces.Box(-1, 1, (1, 3))
    action_space = spaces.Box(-1, 1, (1, 2))

    def _observation(self) -> dict[str, Any]:
        return {"agent": {"qpos": np.ones((1, 3), np.float32)}, "sensor": np.ones((1, 4, 6, 3), np.uint8)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        assert options is not None
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        yes, no = np.array([True]), np.array([False])
        return self._observation(), np.array([2.0]), yes, no, {"success": yes}


gymnasium.register("Batched-v0", entry_point=Batched)


def made(id: str, **options: Any) -> GymnasiumControl:
    return GymnasiumControl(ControlEnvironmentConfig(id=id, **options))


def test_id_of_gymnasium_is_a_control_environment() -> None:
    spec = Registry().spec("environment", "Pendulum-v1")
    assert isinstance(spec, EnvironmentSpec)
    assert (spec.id, spec.action) == ("Pendulum-v1", "control")


@pytest.mark.parametrize("id", ["Pendulum-v1", "gymnasium.envs:Pendulum-v1"])
def test_id_of_gymnasium_is_made_in_another_interpreter(id: str) -> None:
    spec = Registry().spec("environment", id)
    assert isinstance(spec, EnvironmentSpec)
    options = ControlEnvironmentConfig(id=id, arguments={"max_episode_steps": 2}, reward_scale=0.5)
    environment = HostedEnvironments(interpreters(spec), spec=spec, options=options, timeout_s=60).make()
    own = made(id, arguments={"max_episode_steps": 2}, reward_scale=0.5)
    assert np.array_equal(environment.reset(seed=1)[0], own.reset(seed=1)[0])
    action = np.zeros(1, np.float32)
    found, here = environment.step(action), own.step(action)
    assert np.array_equal(found[0], here[0])
    assert found[1] == pytest.approx(here[1])
    environment.close()


@pytest.mark.parametrize("id", ["Pendulum", "pendulum-v", "my_module:Environment"])
def test_other_ids_are_not_claimed(id: str) -> None:
    with pytest.raises(UserError):
        Registry().spec("environment", id)


def test_environment_id_selects_environment_and_its_seeds() -> None:
    pytest.importorskip("rlcore_rollout", reason="a configuration selects an engine")
    plan = RunPlan.of(
        {
            "model": {"path": "."},
            "environment": {"id": "Pendulum-v1", "reward_scale": 0.5},
            "data": {"train": 3},
            "reward": [{"id": "gymnasium-return"}],
        },
        purpose="evaluation",
    )
    (environment,) = plan.resolved.environments
    assert environment.options == ControlEnvironmentConfig(id="Pendulum-v1", reward_scale=0.5)
    assert environment.data == ControlDataConfig(train=3)


def test_unknown_key_of_the_environment_is_rejected() -> None:
    tables = {"model": {"path": "."}, "environment": {"id": "Pendulum-v1", "gravity": 1}}
    with pytest.raises(ConfigError, match="gravity"):
        RunPlan.of({**tables, "reward": [{"id": "gymnasium-return"}]}, purpose="evaluation")


def test_seeds_of_training_and_evaluation_differ() -> None:
    dataset = ControlSeeds(ControlDataConfig(train=4, evaluation=3))
    train, held_out = (dataset.tasks(split) for split in ("train", "evaluation"))
    assert [task.fields["seed"] for task in train] == [0, 1, 2, 3]
    assert len(held_out) == 3
    assert not {task.id for task in train} & {task.id for task in held_out}


def test_rewards_are_scaled() -> None:
    rewards = []
    for scale in (1.0, 0.1):
        environment = made("Pendulum-v1", reward_scale=scale)
        environment.reset(seed=3)
        rewards.append(environment.step(np.zeros(1, np.float32))[1])
        environment.close()
    assert rewards[1] == pytest.approx(0.1 * rewards[0])
    assert rewards[0] < 0


def test_batched_results_are_plain_arrays_and_numbers() -> None:
    environment = made("Batched-v0")
    observation, _ = environment.reset(seed=0)
    assert {name: part.shape for name, part in observation.items()} == {"agent/qpos": (3,), "images/sensor": (4, 6, 3)}
    assert environment.observation_space.contains(observation)
    assert environment.action_space.shape == (2,)
    observation, reward, terminated, truncated, info = environment.step(np.zeros(2, np.float32))
    assert (reward, terminated, truncated, info) == (2.0, True, False, {"is_success": True})


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"id": "NoSuchThing-v1"}, "NoSuchThing"),
        ({"id": "no_such_module:Thing-v1"}, "no_such_module"),
        ({"id": "CartPole-v1"}, "Discrete"),
        ({"id": "Pendulum-v1", "arguments": {"gravitation": 1}}, "gravitation"),
    ],
)
def test_unusable_environment_is_reported(options: dict[str, Any], found: str) -> None:
    with pytest.raises(UserError, match="environment") as raised:
        made(**options)
    assert found in str(raised.value)


def test_an_unknown_id_is_told_how_other_packages_register_theirs() -> None:
    with pytest.raises(UserError) as raised:
        made("PickCube-v1")
    assert "environment.id=MODULE:PickCube-v1" in str(raised.value.fix)
    with pytest.raises(UserError) as raised:
        made("gymnasium.envs:NoSuchThing-v1")
    assert "MODULE" not in str(raised.value.fix)
