"""The sheets of a run: one for each evaluation whose trajectories have images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.report import Facts, has_images, notes_of_plugins, write_sheet
from rlcore.runs.layout import SHEETS

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry
    from rlcore.session.plan import RunPlan
    from rlcore.types import Group


def write_evaluation_sheet(run: Path, step: int, groups: Sequence[Group], plan: RunPlan, registry: Registry) -> None:
    """Write ``sheets/evaluation-NNNNNN.html`` in a run directory, unless no trajectory has an image.

    Raises:
        UserError: the file cannot be written.
    """
    if not has_images(groups):
        return
    config = plan.resolved.config
    rows = [("model", config.model.path), ("recipe", plan.resolved.recipe), ("run", run.name)]
    facts = Facts(title=f"Evaluation at step {step}", rows=rows, success=config.evaluation.success)
    write_sheet(run / SHEETS / f"evaluation-{step:06d}.html", groups, facts, notes_of_plugins(registry))


__all__ = ["write_evaluation_sheet"]
