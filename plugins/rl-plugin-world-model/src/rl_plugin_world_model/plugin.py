"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, ModelBuilderSpec, RecipeSpec, Spec, TrainerSpec

if TYPE_CHECKING:
    import pluggy

_PACKAGE = "rl_plugin_world_model"


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Register the hook for terms of the explorer's reward."""
    from rl_plugin_world_model import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@hookimpl
def rlcore_trainers() -> Iterable[TrainerSpec]:
    """The three phases."""
    summaries = {
        "teacher": "Phase 1: a world model that predicts the next frame.",
        "student": "Phase 2: an explorer that is rewarded by the world model of phase 1.",
        "adversarial": "Phase 3: the world model and the explorer against each other.",
    }
    for phase, summary in summaries.items():
        tables = () if phase == "teacher" else (("algorithm", "rlcore_trainer.algorithms.config:AlgorithmConfig"),)
        yield TrainerSpec(
            id=f"world-model-{phase}",
            target=f"{_PACKAGE}.trainers:{phase.title()}Trainer",
            config=f"{_PACKAGE}.config:{phase.title()}Config",
            summary=summary,
            needs_environment=False,
            check=f"{_PACKAGE}.checks:check",
            tables=tables,
        )


@hookimpl
def rlcore_models() -> Iterable[ModelBuilderSpec]:
    """The networks of the phases."""
    yield ModelBuilderSpec(
        id="world-model",
        target=f"{_PACKAGE}.exploration:build",
        config=f"{_PACKAGE}.config:NetworkConfig",
        summary="World model and explorer of the phases, built from a seed.",
    )


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """The data of exploration, which has no tasks."""
    yield DatasetSpec(
        id="exploration",
        target=f"{_PACKAGE}.exploration:Exploration",
        summary="No rows: the environment is explored.",
    )


@hookimpl
def rlcore_environments() -> Iterable[EnvironmentSpec]:
    """An environment that runs everywhere."""
    yield EnvironmentSpec(
        id="flat-arm",
        target=f"{_PACKAGE}.flat_arm:FlatArm",
        config=f"{_PACKAGE}.flat_arm:FlatArmConfig",
        summary="A flat two-joint arm over a coloured floor; needs neither SAPIEN nor a GPU.",
        action="control",
    )


@hookimpl
def rlcore_reward_terms() -> Iterable[Spec]:
    """Terms of the explorer's reward."""
    summaries = {
        "wm_error": "Error of the world model on the transition that was made.",
        "wm_uncertainty": "Entropy of the world model's prediction.",
        "learning_progress": "Decrease of the error by training on the round.",
        "memory_divergence": "Decrease of the distance between the memories of explorer and world model.",
        "action_cost": "Minus the mean absolute action.",
        "task_success": "1 at the end of a successful episode.",
    }
    for id, summary in summaries.items():
        yield Spec(id=id, target=f"{_PACKAGE}.rewards:{id}", summary=summary)


@hookimpl
def rlcore_recipes() -> Iterable[RecipeSpec]:
    """The first phase as the default recipe."""
    yield RecipeSpec(id="world-model/default", target=f"{_PACKAGE}:recipes/teacher.toml", summary="The recipe teacher.")
