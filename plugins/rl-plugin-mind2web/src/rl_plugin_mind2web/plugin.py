"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec

if TYPE_CHECKING:
    from rlcore.report import TurnNote
    from rlcore.types import Group, Task, Trajectory

_PACKAGE = "rl_plugin_mind2web"


@hookimpl
def rlcore_environments() -> Iterable[EnvironmentSpec]:
    """The environment."""
    yield EnvironmentSpec(
        id="mind2web",
        target=f"{_PACKAGE}.environment:Mind2WebScreens",
        config=f"{_PACKAGE}.environment:EnvironmentConfig",
        modalities=frozenset({"text", "image"}),
        summary="Recorded web pages: one step, or an episode with the agent's own summaries as memory.",
    )


@hookimpl
def rlcore_rewards() -> Iterable[RewardSpec]:
    """The rewards."""
    yield RewardSpec(
        id="mind2web",
        target=f"{_PACKAGE}.scoring:Mind2Web",
        config="rlcore_gui.rewards:FormConfig",
        summary="The right element times the F1 of the operation, and the grammar of the answer.",
    )
    yield RewardSpec(
        id="mind2web-action",
        target=f"{_PACKAGE}.scoring:action_reward",
        summary="1 if element and operation are right, else 0.",
    )
    yield RewardSpec(
        id="mind2web-format",
        target=f"{_PACKAGE}.scoring:format_reward",
        summary="1 if the answer follows the strict grammar, else 0.",
    )
    yield RewardSpec(
        id="mind2web-legacy",
        target=f"{_PACKAGE}.legacy:legacy_reward",
        summary="GUI-Rise's published reward, including its errors.",
        maximum=1.7,
    )
    yield RewardSpec(
        id="mind2web-history-summary",
        target=f"{_PACKAGE}.environment:Mind2WebHistorySummary",
        config="rlcore_gui.history_summary:HistorySummaryConfig",
        summary="How well the next step is answered with the history summary as its memory.",
    )


@hookimpl
def rlcore_rollouts_scored(run: Any, step: int, purpose: str, groups: Sequence[Group]) -> Mapping[str, float] | None:
    """Write the results of evaluations, in runs with ``observers = ["mind2web"]``."""
    if purpose != "evaluation":
        return None
    from rlcore_gui.evaluation.observer import evaluated

    from rl_plugin_mind2web.benchmark import MIND2WEB

    return evaluated(MIND2WEB, run, step, groups)


@hookimpl
def rlcore_turn_notes(task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """Draw taps on the screenshots of sheets."""
    if task.fields.get("benchmark") != "mind2web":
        return None
    from rlcore_gui.evaluation.notes import turn_notes

    from rl_plugin_mind2web.benchmark import MIND2WEB

    return turn_notes(MIND2WEB, task, trajectory)


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """Recorded episodes."""
    yield DatasetSpec(
        id="mind2web",
        target=f"{_PACKAGE}.dataset:Mind2WebData",
        config=f"{_PACKAGE}.dataset:Mind2WebDataConfig",
        prepare=f"{_PACKAGE}.prepare:prepare",
        prepare_config=f"{_PACKAGE}.prepare:Mind2WebPrepareConfig",
        label=f"{_PACKAGE}.label:label",
        label_config=f"{_PACKAGE}.label:Mind2WebLabelConfig",
        summary="Recorded episodes on web pages (Mind2Web), from prepared files, or drawn web pages.",
    )
