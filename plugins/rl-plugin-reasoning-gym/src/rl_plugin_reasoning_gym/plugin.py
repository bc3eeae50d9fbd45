"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_reasoning_gym"

rlcore_specs = [
    EnvironmentSpec(
        id="reasoning-gym",
        target=f"{_PACKAGE}.environment:Question",
        summary="A question and one answer.",
    ),
    DatasetSpec(
        id="reasoning-gym",
        target=f"{_PACKAGE}.dataset:GeneratedTasks",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="Tasks of the generators of reasoning-gym, at a level of difficulty, and mixtures of them.",
    ),
    RewardSpec(
        id="reasoning-gym",
        target=f"{_PACKAGE}.reward:Verified",
        config=f"{_PACKAGE}.config:RewardConfig",
        summary="The score of the generator's own verifier.",
    ),
]
