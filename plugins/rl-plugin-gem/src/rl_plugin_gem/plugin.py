"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_gem"

rlcore_specs = [
    EnvironmentSpec(
        id="gem",
        target=f"{_PACKAGE}.environment:GemChat",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Text environments of GEM, such as games and reasoning puzzles, as a chat.",
        blocking=True,
    ),
    DatasetSpec(
        id="gem",
        target=f"{_PACKAGE}.dataset:GemTasks",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="Seeds of a GEM environment, and demonstrations with random actions.",
    ),
    RewardSpec(
        id="gem-return",
        target=f"{_PACKAGE}.reward:episode_return",
        summary="The sum of the rewards of a GEM environment.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
]
