"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

_PACKAGE = "rl_plugin_miniwob"
_MOST_WINDOWS = 32
"""Windows of a process that are open at a time, which is the limit of concurrent episodes."""

rlcore_specs = [
    EnvironmentSpec(
        id="miniwob",
        target=f"{_PACKAGE}.environment:Elements",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Web pages of MiniWoB++ in Chromium, shown as lists of elements.",
        blocking=True,
        max_concurrency=_MOST_WINDOWS,
        check=f"{_PACKAGE}.environment:check",
    ),
    EnvironmentSpec(
        id="miniwob-screens",
        target=f"{_PACKAGE}.environment:Screens",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Web pages of MiniWoB++ in Chromium, shown as screenshots.",
        modalities=frozenset({"text", "image"}),
        blocking=True,
        max_concurrency=_MOST_WINDOWS,
        check=f"{_PACKAGE}.environment:check",
    ),
    DatasetSpec(
        id="miniwob",
        target=f"{_PACKAGE}.dataset:Pages",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="Pages of MiniWoB++ with seeds, and demonstrations with random clicks.",
    ),
    DatasetSpec(
        id="miniwob-screens",
        target=f"{_PACKAGE}.dataset:ScreenPages",
        config=f"{_PACKAGE}.config:DataConfig",
        summary="The same pages, with demonstrations on screenshots.",
    ),
    RewardSpec(
        id="miniwob",
        target=f"{_PACKAGE}.reward:page_reward",
        summary="The reward of the page, without the reduction with time; 0 in place of negative rewards.",
    ),
]
