"""Rows as tasks."""

from __future__ import annotations

from rlcore import Task

from rl_plugin_visual_search.prompts import Coordinates, Style, Tools, opening, own_opening
from rl_plugin_visual_search.rows import Row


def as_task(row: Row, *, tools: Tools = "code", style: Style = "guided", coordinates: Coordinates = "pixels") -> Task:
    """Return the task of a row.

    Its fields are those of the row (``question``, ``answer``, ``aliases``, ``options``, ``data_source`` and
    ``category``), and what the environment needs: ``tools`` and ``coordinates``.

    Raises:
        DataError: a picture cannot be read.
    """
    if style == "row" and row.prompt:
        messages = own_opening(row.prompt, row.images)
    else:
        messages = opening(
            row.question,
            row.images,
            tools=tools,
            style="guided" if style == "row" else style,
            options=row.options,
            coordinates=coordinates,
        )
    fields = {
        "question": row.question,
        "answer": row.answer,
        "aliases": list(row.aliases),
        "options": list(row.options),
        "data_source": row.data_source,
        "category": row.category,
        "tools": tools,
        "coordinates": coordinates,
    }
    return Task(id=row.id, messages=messages, fields=fields, images=tuple(dict.fromkeys(row.images)))


__all__ = ["as_task"]
