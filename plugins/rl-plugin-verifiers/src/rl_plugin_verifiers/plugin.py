"""The components of this plugin."""

from __future__ import annotations

from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_verifiers"

rlcore_specs = [
    EnvironmentSpec(
        id="verifiers",
        target=f"{_PACKAGE}.environment:Verifiers",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="A taskset of verifiers, with its tools, stop conditions and simulated users.",
        check=f"{_PACKAGE}.environment:check",
    ),
    DatasetSpec(
        id="verifiers",
        target=f"{_PACKAGE}.dataset:TasksetData",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="The tasks of a taskset of verifiers.",
    ),
    RewardSpec(
        id="verifiers",
        target=f"{_PACKAGE}.reward:verifiers_score",
        summary="The sum of the rewards of a taskset of verifiers.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
]
