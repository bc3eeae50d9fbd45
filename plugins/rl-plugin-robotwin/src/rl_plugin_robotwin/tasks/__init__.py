"""Bundled bimanual tasks: blocks on a table, rules of success, and instructions."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore.errors import UserError, did_you_mean

from rl_plugin_robotwin.tasks.handover import Handover
from rl_plugin_robotwin.tasks.lift import Lift
from rl_plugin_robotwin.tasks.rank_three import RankThree
from rl_plugin_robotwin.tasks.reach import Reach
from rl_plugin_robotwin.tasks.stack_two import StackTwo
from rl_plugin_robotwin.tasks.task import BundledTask

TASKS: Mapping[str, type[BundledTask]] = {task.name: task for task in (Reach, Lift, StackTwo, RankThree, Handover)}
"""The bundled tasks by name."""


def bundled(name: str) -> BundledTask:
    """The bundled task of a name.

    Raises:
        UserError: there is none.
    """
    if name in TASKS:
        return TASKS[name]()
    fix = did_you_mean(name, TASKS) or f"use {', '.join(TASKS)}"
    raise UserError("unknown bundled task", found=name, where="environment.task", fix=fix)
