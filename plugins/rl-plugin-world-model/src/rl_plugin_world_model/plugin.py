"""The hook implementations of this plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, ModelBuilderSpec, RecipeSpec, Spec, TrainerSpec

if TYPE_CHECKING:
    import pluggy
    from rlcore.report import TurnNote
    from rlcore.types import Task, Trajectory

_PACKAGE = "rl_plugin_world_model"


_PHASES = {
    "teacher": "Phase 1: a world model that predicts the next frame.",
    "student": "Phase 2: an explorer that is rewarded by the world model of phase 1.",
    "adversarial": "Phase 3: the world model and the explorer against each other.",
}
_ALGORITHM = ("algorithm", "rlcore_trainer.algorithms.config:AlgorithmConfig")
_TERMS = {
    "wm_error": "Error of the world model on the transition that was made.",
    "wm_uncertainty": "Entropy of the world model's prediction.",
    "learning_progress": "Decrease of the error by training on the round.",
    "memory_divergence": "Decrease of the distance between the memories of explorer and world model.",
    "action_cost": "Minus the mean absolute action.",
    "task_success": "1 at the end of a successful episode.",
}

rlcore_specs = [
    *(
        TrainerSpec(
            id=f"world-model-{phase}",
            target=f"{_PACKAGE}.trainers:{phase.title()}Trainer",
            config=f"{_PACKAGE}.config:{phase.title()}Config",
            summary=summary,
            needs_environment=False,
            check=f"{_PACKAGE}.checks:check",
            tables=() if phase == "teacher" else (_ALGORITHM,),
        )
        for phase, summary in _PHASES.items()
    ),
    ModelBuilderSpec(
        id="world-model",
        target=f"{_PACKAGE}.exploration:build",
        config=f"{_PACKAGE}.config:NetworkConfig",
        summary="World model and explorer of the phases, built from a seed.",
    ),
    DatasetSpec(
        id="exploration",
        target=f"{_PACKAGE}.exploration:Exploration",
        summary="No rows: the environment is explored.",
    ),
    EnvironmentSpec(
        id="flat-arm",
        target=f"{_PACKAGE}.flat_arm:FlatArm",
        config=f"{_PACKAGE}.flat_arm:FlatArmConfig",
        summary="A flat two-joint arm over a coloured floor; needs neither SAPIEN nor a GPU.",
        action="control",
    ),
    RecipeSpec(id="world-model/default", target=f"{_PACKAGE}:recipes/teacher.toml", summary="The recipe teacher."),
    *(Spec(id=term, target=f"{_PACKAGE}.rewards:{term}", summary=summary) for term, summary in _TERMS.items()),
]


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Register the hook for terms of the explorer's reward."""
    from rl_plugin_world_model import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@hookimpl
def rlcore_turn_notes(task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
    """Show the terms of the reward at each step."""
    if "terms" not in task.fields:
        return None
    from rl_plugin_world_model.notes import turn_notes

    return turn_notes(task, trajectory)
