"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_textarena"
MOST_GAMES = 128
"""Games at a time. Each has a process that shares most of its memory with the others."""

rlcore_specs = [
    EnvironmentSpec(
        id="textarena",
        target=f"{_PACKAGE}.environment:TextArena",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Games of TextArena for one player or two, with self-play.",
        max_concurrency=MOST_GAMES,
    ),
    DatasetSpec(
        id="textarena",
        target=f"{_PACKAGE}.dataset:Seeds",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="Seeds of a game, the opponent, and demonstrations with random legal moves.",
    ),
    RewardSpec(
        id="textarena",
        target=f"{_PACKAGE}.reward:game_result",
        summary="The result of the game for the player.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
]
