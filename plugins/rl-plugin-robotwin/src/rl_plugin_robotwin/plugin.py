"""The hook implementations of this plugin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rlcore.hookspecs import hookimpl
from rlcore.specs import (
    CheckSpec,
    CommandSpec,
    DatasetSpec,
    EnvironmentSpec,
    ModelBuilderSpec,
    RecipeSpec,
    Spec,
    TrainerSpec,
)

if TYPE_CHECKING:
    from rlcore.types import Group

_PACKAGE = "rl_plugin_robotwin"
_TRAINING = ("rlcore-trainer>=0.1", "imageio-ffmpeg>=0.6", "pillow>=11")
_PHASES = {
    "teacher": ("phase1", "wm"),
    "student": ("phase2", "explorer"),
    "adversarial": ("phase3", "adv"),
}


@hookimpl
def rlcore_checks() -> Iterable[CheckSpec]:
    """The check of ``rlcore doctor``."""
    yield CheckSpec(id="robotwin", target=f"{_PACKAGE}.doctor:robots", summary="Simulator and renderer of robots.")


@hookimpl
def rlcore_environments() -> Iterable[EnvironmentSpec]:
    """The bundled tasks."""
    yield EnvironmentSpec(
        id="robotwin",
        target=f"{_PACKAGE}.environment:BimanualEnvironment",
        config=f"{_PACKAGE}.config:EnvironmentConfig",
        summary="Two robot arms at a table in SAPIEN physics.",
        action="control",
        blocking=True,
        needs=("sapien>=3.0.3",),
    )
    yield EnvironmentSpec(
        id="robotwin-toy",
        target=f"{_PACKAGE}.toy:ToyArm",
        config=f"{_PACKAGE}.toy:ToyConfig",
        summary="A flat two-joint arm over a coloured floor; needs neither SAPIEN nor a GPU.",
        action="control",
    )
    yield EnvironmentSpec(
        id="robotwin-checkout",
        target=f"{_PACKAGE}.robotwin_checkout.environment:from_options",
        config=f"{_PACKAGE}.robotwin_checkout.config:CheckoutConfig",
        summary="RoboTwin's own tasks, from a checkout of RoboTwin.",
        action="control",
        blocking=True,
    )


@hookimpl
def rlcore_commands() -> Iterable[CommandSpec]:
    """``rlcore robotwin``."""
    yield CommandSpec(
        id="robotwin",
        target=f"{_PACKAGE}.command:robotwin",
        summary="Train phases, and evaluate policies on RoboTwin's protocol.",
    )


@hookimpl
def rlcore_datasets() -> Iterable[DatasetSpec]:
    """Tasks and their demonstrations, and the data of exploration, which has no tasks."""
    yield DatasetSpec(
        id="robotwin-exploration",
        target=f"{_PACKAGE}.phases.exploration:Exploration",
        summary="No rows: the environment is explored.",
    )
    yield DatasetSpec(
        id="robotwin-checkout",
        target=f"{_PACKAGE}.data.checkout_tasks:CheckoutTasks",
        config=f"{_PACKAGE}.config:SeedsConfig",
        summary="Seeds of a task of a RoboTwin checkout, and demonstrations of RoboTwin's expert.",
    )
    yield DatasetSpec(
        id="robotwin",
        target=f"{_PACKAGE}.data.bundled_tasks:BundledTasks",
        config=f"{_PACKAGE}.config:DataConfig",
        prepare=f"{_PACKAGE}.data.demonstrations:prepare",
        prepare_config=f"{_PACKAGE}.config:PrepareConfig",
        summary="Seeds of a bundled task, and demonstrations of its expert.",
        needs=("sapien>=3.0.3",),
    )


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
            id=f"robotwin-{phase}",
            target=f"{_PACKAGE}.phases.trainers:{phase.title()}Trainer",
            config=f"{_PACKAGE}.phases.config:{phase.title()}Config",
            summary=summary,
            needs=_TRAINING,
            needs_environment=False,
            check=f"{_PACKAGE}.phases.checks:check",
            tables=tables,
        )


@hookimpl
def rlcore_models() -> Iterable[ModelBuilderSpec]:
    """The networks of the phases."""
    yield ModelBuilderSpec(
        id="robotwin-networks",
        target=f"{_PACKAGE}.phases.exploration:build",
        config=f"{_PACKAGE}.phases.config:NetworkConfig",
        summary="World model and explorer of the phases, built from a seed.",
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
        yield Spec(id=id, target=f"{_PACKAGE}.phases.rewards:{id}", summary=summary)


@hookimpl
def rlcore_recipes() -> Iterable[RecipeSpec]:
    """The phases under their other names."""
    for phase, aliases in _PHASES.items():
        for name in aliases:
            yield RecipeSpec(
                id=f"robotwin/{name}", target=f"{_PACKAGE}:recipes/{phase}.toml", summary=f"The recipe {phase}."
            )


@hookimpl
def rlcore_rollouts_scored(run: Any, step: int, purpose: str, groups: Sequence[Group]) -> None:
    """Film episodes of evaluations, in runs with ``observers = ["robotwin"]``."""
    if purpose == "evaluation":
        from rl_plugin_robotwin.evaluation.episode_videos import film

        film(run, step, groups)
