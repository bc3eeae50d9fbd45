"""The hook implementations of this plugin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

if TYPE_CHECKING:
    from rlcore.report import TurnNote
    from rlcore.types import Group, Task, Trajectory

_PACKAGE = "rl_plugin_visual_search"
_NAMED = {
    "qwen2.5-vl-7b-sft": "SFT of Qwen2.5-VL-7B on conversations with code and pictures, on a GPU.",
    "qwen2.5-vl-7b": "GRPO with Qwen2.5-VL-7B and a judge, on one machine.",
    "qwen2.5-vl-7b-2x8": "GRPO with Qwen2.5-VL-7B and a judge, on two machines of eight GPUs.",
    "qwen2.5-vl-7b-ranked": "GRPO with Qwen2.5-VL-7B and a judge, with oversampling, filtering and ranking.",
}

rlcore_specs = [
    EnvironmentSpec(
        id="visual-search",
        target=f"{_PACKAGE}.environment:VisualSearch",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        modalities=frozenset({"text", "image"}),
        runs_code=True,
        check=f"{_PACKAGE}.checks:check",
        summary="A question about pictures; the agent writes code, or zooms, to look closer.",
    ),
    RewardSpec(
        id="visual-search",
        target=f"{_PACKAGE}.rewards:Accuracy",
        config=f"{_PACKAGE}.config:AccuracyConfig",
        summary="1 if the boxed answer is right: a choice, a number or a text.",
    ),
    RewardSpec(
        id="visual-search-tools",
        target=f"{_PACKAGE}.rewards:ToolBonus",
        config=f"{_PACKAGE}.config:ToolBonusConfig",
        scope="group",
        maximum=math.inf,
        check=f"{_PACKAGE}.checks:check_tool_bonus",
        summary="The number of successful tool calls, if an accuracy reward of the run says that the answer is right.",
    ),
    RewardSpec(
        id="visual-search-format",
        target=f"{_PACKAGE}.rewards:format_reward",
        summary="1 if every turn is one code block or tool call, and the last one is a boxed answer.",
    ),
    DatasetSpec(
        id="visual-search",
        target=f"{_PACKAGE}.dataset:VisualSearchData",
        config=f"{_PACKAGE}.config:DataConfig",
        prepare=f"{_PACKAGE}.data.prepare:prepare",
        prepare_config=f"{_PACKAGE}.config:PrepareConfig",
        summary="Questions about pictures from parquet, JSON or JSONL files, or drawn pictures.",
    ),
]


@hookimpl
def rlcore_rollouts_scored(run: Any, step: int, purpose: str, groups: Sequence[Group]) -> Mapping[str, float] | None:
    """Write the results of evaluations, in runs with ``observers = ["visual-search"]``."""
    if purpose != "evaluation":
        return None
    from rl_plugin_visual_search.evaluation.results import evaluated

    return evaluated(run, step, groups)


@hookimpl
def rlcore_turn_notes(task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """Say below each turn what it did and how it went."""
    if "coordinates" not in task.fields:
        return None
    from rl_plugin_visual_search.evaluation.notes import turn_notes

    return turn_notes(task, trajectory)
