"""Rows as tasks."""

from __future__ import annotations

from rlcore import Task

from rl_plugin_visual_search.rows import Row


def as_task(row: Row, *, tools: str = "code", style: str = "guided") -> Task:
    """Return the task of a row.

    Its fields are ``question``, ``answer``, ``aliases``, ``options``, ``data_source`` and ``category``.
    """
    raise NotImplementedError
