"""The hooks of rlcore-core: register hooks return specs, claim hooks return the first result.

Observe hooks are called in the runs whose key ``observers`` names the plugin. Two of them can return metrics, which are
logged with those of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from rlcore.report.notes import TurnNote
    from rlcore.specs import (
        CheckSpec,
        CommandSpec,
        ConfigAdapterSpec,
        DatasetSpec,
        DiagnosisSpec,
        EnvironmentSpec,
        ModelBuilderSpec,
        RecipeSpec,
        RewardSpec,
        SandboxSpec,
        ToolSpec,
        TrackerSpec,
    )
    from rlcore.types import Group, Task, Trajectory

hookspec = pluggy.HookspecMarker("rlcore")
hookimpl = pluggy.HookimplMarker("rlcore")


@hookspec
def rlcore_environments() -> Iterable[EnvironmentSpec]:  # type: ignore[empty-body]
    """Register environments. Called once, when an environment is first used."""


@hookspec
def rlcore_rewards() -> Iterable[RewardSpec]:  # type: ignore[empty-body]
    """Register rewards."""


@hookspec
def rlcore_tools() -> Iterable[ToolSpec]:  # type: ignore[empty-body]
    """Register tools."""


@hookspec
def rlcore_sandboxes() -> Iterable[SandboxSpec]:  # type: ignore[empty-body]
    """Register sandboxes."""


@hookspec
def rlcore_models() -> Iterable[ModelBuilderSpec]:  # type: ignore[empty-body]
    """Register model builders; ``model.path = "builtin:ID"`` selects one."""


@hookspec
def rlcore_datasets() -> Iterable[DatasetSpec]:  # type: ignore[empty-body]
    """Register datasets."""


@hookspec
def rlcore_recipes() -> Iterable[RecipeSpec]:  # type: ignore[empty-body]
    """Register recipes in addition to the files in the folder ``recipes`` of the plugin's package.

    ``--plugin PLUGIN`` runs ``PLUGIN/default``.
    """


@hookspec
def rlcore_trackers() -> Iterable[TrackerSpec]:  # type: ignore[empty-body]
    """Register trackers."""


@hookspec
def rlcore_commands() -> Iterable[CommandSpec]:  # type: ignore[empty-body]
    """Register commands; rlcore's own commands take precedence."""


@hookspec
def rlcore_checks() -> Iterable[CheckSpec]:  # type: ignore[empty-body]
    """Register checks for ``rlcore doctor``."""


@hookspec
def rlcore_diagnoses() -> Iterable[DiagnosisSpec]:  # type: ignore[empty-body]
    """Register rules about why a run does not learn. They apply to all runs, and print only when they hold."""


@hookspec
def rlcore_config_adapters() -> Iterable[ConfigAdapterSpec]:  # type: ignore[empty-body]
    """Register config adapters, which translate overrides and files of other systems."""


@hookspec(firstresult=True)
def rlcore_component(kind: str, id: str) -> EnvironmentSpec | DatasetSpec | None:
    """Claim an id of an environment or dataset that no plugin registers, such as one of another registry.

    ``kind`` is ``environment`` or ``dataset``. Returns a spec with this id, or None to pass. A model of its options
    with a field ``id`` receives the id. An id with a colon that is claimed is not read as an import path.
    """


@hookspec(firstresult=True)
def rlcore_turn_notes(task: Task, trajectory: Trajectory, step: int) -> Sequence[TurnNote | None] | None:
    """Claim the notes that pages show about the turns of a trajectory, such as marks on images; None passes.

    ``step`` is that of its file of rollouts.
    """


@hookspec
def rlcore_run_started(run: Any) -> None:
    """Observe: the run directory exists, and nothing has been computed yet."""


@hookspec
def rlcore_rollouts_scored(run: Any, step: int, purpose: str, groups: Sequence[Group]) -> Mapping[str, float] | None:
    """Observe: trajectories have been scored; ``purpose`` is ``train`` or ``evaluation``. May return metrics."""


@hookspec
def rlcore_step_finished(run: Any, step: int, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
    """Observe: a step finished, with these metrics. May return further metrics."""


@hookspec
def rlcore_checkpoint_saved(run: Any, step: int, path: Path) -> None:
    """Observe: a complete checkpoint has been written to ``path``."""


@hookspec
def rlcore_run_finished(run: Any, error: BaseException | None) -> None:
    """Observe: the run ended; ``error`` is None when it succeeded."""


@hookspec(historic=True)
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Add further hook specifications with ``pluginmanager.add_hookspecs``."""
