"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

if TYPE_CHECKING:
    from rlcore.report import TurnNote
    from rlcore.types import Group, Task, Trajectory

_PACKAGE = "rl_plugin_aitw"


@hookimpl
def rlcore_environments() -> Iterable[EnvironmentSpec]:
    """The environment."""
    yield EnvironmentSpec(
        id="aitw",
        target=f"{_PACKAGE}.environment:AitwScreens",
        config=f"{_PACKAGE}.environment:EnvironmentConfig",
        modalities=frozenset({"text", "image"}),
        summary="Recorded phone screens: one step, or an episode with the agent's own summaries as memory.",
    )


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    yield RewardSpec(
        id="aitw",
        target=f"{_PACKAGE}.scoring:Aitw",
        config="rlcore_gui.rewards:FormConfig",
        summary="The strict match of the action, and the grammar of the answer.",
    )
    yield RewardSpec(
        id="aitw-action",
        target=f"{_PACKAGE}.scoring:action_reward",
        summary="1 if the action matches officially, else 0.",
    )
    yield RewardSpec(
        id="aitw-format",
        target=f"{_PACKAGE}.scoring:format_reward",
        summary="1 if the answer follows the strict grammar, else 0.",
    )
    yield RewardSpec(
        id="aitw-legacy",
        target=f"{_PACKAGE}.legacy:legacy_reward",
        summary="GUI-Rise's published reward, including its errors.",
        maximum=1.3125,
    )
    yield RewardSpec(
        id="aitw-history-summary",
        target=f"{_PACKAGE}.environment:AitwHistorySummary",
        config="rlcore_gui.history_summary:HistorySummaryConfig",
        summary="How well the next step is answered with the history summary as its memory.",
    )


@hookimpl
def rlcore_rollouts_scored(run: Any, step: int, purpose: str, groups: Sequence[Group]) -> Mapping[str, float] | None:
    """Write the results of evaluations, in runs with ``observers = ["aitw"]``."""
    if purpose != "evaluation":
        return None
    from rlcore_gui.evaluation.observer import evaluated

    from rl_plugin_aitw.benchmark import AITW

    return evaluated(AITW, run, step, groups)


@hookimpl
def rlcore_turn_notes(task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """Draw taps on the screenshots of sheets."""
    if task.fields.get("benchmark") != "aitw":
        return None
    from rlcore_gui.evaluation.notes import turn_notes

    from rl_plugin_aitw.benchmark import AITW

    return turn_notes(AITW, task, trajectory)


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """Recorded episodes."""
    yield DatasetSpec(
        id="aitw",
        target=f"{_PACKAGE}.dataset:AitwData",
        config=f"{_PACKAGE}.dataset:AitwDataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.prepare:AitwPrepareConfig",
        label=f"{_PACKAGE}.label:label",
        label_config=f"{_PACKAGE}.label:AitwLabelConfig",
        summary="Recorded episodes on Android phones (AITW), from prepared files, or drawn phone screens.",
    )
