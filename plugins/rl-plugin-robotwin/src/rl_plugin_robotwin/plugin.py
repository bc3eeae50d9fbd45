"""The hook implementations of this plugin."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.hookspecs import hookimpl
from rlcore.specs import (
    CheckSpec,
    CommandSpec,
    DatasetSpec,
    EnvironmentSpec,
    RecipeSpec,
)

if TYPE_CHECKING:
    from rlcore.report import TurnNote
    from rlcore.types import Group, Task, Trajectory

_PACKAGE = "rl_plugin_robotwin"
_PHASES = {
    "teacher": ("phase1", "wm"),
    "student": ("phase2", "explorer"),
    "adversarial": ("phase3", "adv"),
}

rlcore_specs = [
    CheckSpec(id="robotwin", target=f"{_PACKAGE}.doctor:robots", summary="Simulator and renderer of robots."),
    EnvironmentSpec(
        id="robotwin",
        target=f"{_PACKAGE}.environment:BimanualEnvironment",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Two robot arms at a table in SAPIEN physics.",
        action="control",
        blocking=True,
        needs=("sapien>=3.0.3",),
    ),
    EnvironmentSpec(
        id="robotwin-checkout",
        target=f"{_PACKAGE}.robotwin_checkout.environment:from_options",
        config=f"{_PACKAGE}.robotwin_checkout.config:CheckoutConfig",
        summary="RoboTwin's own tasks, from a checkout of RoboTwin.",
        action="control",
        blocking=True,
    ),
    CommandSpec(
        id="robotwin",
        target=f"{_PACKAGE}.command:robotwin",
        summary="Train phases, and evaluate policies on RoboTwin's protocol.",
    ),
    DatasetSpec(
        id="robotwin-checkout",
        target=f"{_PACKAGE}.data.checkout_tasks:CheckoutTasks",
        config=f"{_PACKAGE}.config:SeedsConfig",
        summary="Seeds of a task of a RoboTwin checkout, and demonstrations of RoboTwin's expert.",
    ),
    DatasetSpec(
        id="robotwin",
        target=f"{_PACKAGE}.data.bundled_tasks:BundledTasks",
        config=f"{_PACKAGE}.config:DataConfig",
        prepare=f"{_PACKAGE}.data.demonstrations:prepare",
        prepare_config=f"{_PACKAGE}.config:PrepareConfig",
        summary="Seeds of a bundled task, and demonstrations of its expert.",
        needs=("sapien>=3.0.3",),
    ),
]


@hookimpl
def rlcore_recipes() -> Iterable[RecipeSpec]:
    """The phases under their other names, and on the flat arm of rl-plugin-world-model."""
    for phase, aliases in _PHASES.items():
        for name in aliases:
            yield RecipeSpec(
                id=f"robotwin/{name}", target=f"{_PACKAGE}:recipes/{phase}.toml", summary=f"The recipe {phase}."
            )
        if importlib.util.find_spec("rl_plugin_world_model") is not None:
            yield RecipeSpec(
                id=f"robotwin/toy-{phase}",
                target=f"rl_plugin_world_model:recipes/{phase}.toml",
                summary=f"The recipe {phase} of rl-plugin-world-model, on a flat arm without SAPIEN.",
            )


@hookimpl
def rlcore_rollouts_scored(run: Any, step: int, purpose: str, groups: Sequence[Group]) -> None:
    """Film episodes of evaluations, in runs with ``observers = ["robotwin"]``."""
    if purpose == "evaluation":
        from rl_plugin_robotwin.evaluation.episode_videos import film

        film(run, step, groups)


@hookimpl
def rlcore_turn_notes(task: Task, trajectory: Trajectory, step: int) -> list[TurnNote | None] | None:
    """Show the film of an evaluation episode."""
    if "seed" not in task.fields:
        return None
    from rl_plugin_robotwin.evaluation.notes import turn_notes

    return turn_notes(task, trajectory, step)
