"""Rows as tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlcore import Task
from rlcore.images import image_size
from rlcore.types import media_hash

from rl_plugin_visual_search.data.rows import Row
from rl_plugin_visual_search.prompts import Coordinates, Style, Tools, opening, own_opening


def as_task(
    row: Row,
    *,
    tools: Tools = "code",
    style: Style = "guided",
    coordinates: Coordinates = "pixels",
    shown: bool = True,
    importable: Sequence[str] | None = None,
) -> Task:
    """Return the task of a row.

    Its fields are those of the row (``question``, ``answer``, ``aliases``, ``options``, ``data_source`` and
    ``category``), and what the environment needs: ``tools`` and ``coordinates``, and the hashes of the ``pictures`` if
    the prompt does not show them. With the tools ``zoom``, pages need the ``sizes`` of the pictures.

    Raises:
        DataError: a picture cannot be read.
    """
    if style == "row" and row.prompt:
        messages = own_opening(row.prompt, row.images, shown=shown)
    else:
        messages = opening(
            row.question,
            row.images,
            tools=tools,
            style="guided" if style == "row" else style,
            options=() if row.listed else row.options,
            coordinates=coordinates,
            shown=shown,
            importable=importable,
        )
    fields: dict[str, Any] = {
        "question": row.question,
        "answer": row.answer,
        "aliases": list(row.aliases),
        "options": list(row.options),
        "data_source": row.data_source,
        "category": row.category,
        "tools": tools,
        "coordinates": coordinates,
    }
    if tools == "zoom":
        fields["sizes"] = [list(image_size(image)) for image in row.images]
    if not shown:
        fields["pictures"] = [media_hash(image) for image in row.images]
    return Task(id=row.id, messages=messages, fields=fields, images=tuple(dict.fromkeys(row.images)))


__all__ = ["as_task"]
