"""The hook implementations of this plugin."""

from __future__ import annotations

import re

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_gymnasium"
_GYMNASIUM_ID = re.compile(r"(?:[A-Za-z_][\w.]*:)?(?:[\w:.-]+/)?[\w:.-]+-v\d+")
"""An id with a version, with its namespace and the module that registers it."""

rlcore_specs = [
    EnvironmentSpec(
        id="gymnasium",
        target=f"{_PACKAGE}.environment:GymnasiumChat",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Any Gymnasium environment with text or discrete actions, as a chat.",
        blocking=True,
    ),
    DatasetSpec(
        id="gymnasium",
        target=f"{_PACKAGE}.dataset:GymnasiumTasks",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="Seeds of a Gymnasium environment, and demonstrations with random actions.",
    ),
    RewardSpec(
        id="gymnasium-return",
        target=f"{_PACKAGE}.reward:episode_return",
        summary="The sum of the rewards of a Gymnasium environment.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
]


@hookimpl
def rlcore_component(kind: str, id: str) -> EnvironmentSpec | DatasetSpec | None:
    """Ids of Gymnasium, such as ``Pendulum-v1`` and ``module:PickCube-v1``, as control environments."""
    if _GYMNASIUM_ID.fullmatch(id) is None:
        return None
    if kind == "environment":
        return EnvironmentSpec(
            id=id,
            target=f"{_PACKAGE}.control:GymnasiumControl",
            config=f"{_PACKAGE}.control_config:ControlEnvironmentConfig",
            summary="A registered Gymnasium environment with continuous actions.",
            action="control",
        )
    return DatasetSpec(
        id=id,
        target=f"{_PACKAGE}.control:ControlSeeds",
        config=f"{_PACKAGE}.control_config:ControlDataConfig",
        summary="Seeds of a registered Gymnasium environment.",
    )
