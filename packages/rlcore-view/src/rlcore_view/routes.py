"""What the page asks for, by paths as in ``page/src/api.ts``. The server and reports answer with these functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

from rlcore.errors import UserError
from rlcore.plain_json import plain

from rlcore_view.errors import NotFoundError
from rlcore_view.extremes import extremes
from rlcore_view.find import LIMIT, Question, find
from rlcore_view.library import Library
from rlcore_view.media import film_of, frame_of, image_of
from rlcore_view.run import ShownRun
from rlcore_view.stored import PURPOSES
from rlcore_view.thumbnails import have_pictures, thumbnail
from rlcore_view.tokens import tokens_data
from rlcore_view.trajectories import group_data, note_picture, row_data

_NUMBER = re.compile("[0-9]{1,15}")


def answer(library: Library, path: str, query: Mapping[str, str]) -> Any:
    """The answer to a path such as ``runs/NAME/train/7``, as JSON.

    Raises:
        NotFoundError: there is no such run, step, group or sibling.
        DataError: a file is damaged.
        UserError: the query is not valid.
    """
    match parts_of(path):
        case ["runs"]:
            return plain({"runs": library.lines(), "version": version("rlcore-core"), "report": False})
        case ["runs", id, *rest]:
            return plain(_of_run(library.run(id), rest, query))
    raise _no_page(path)


def media(library: Library, path: str) -> tuple[bytes, str]:
    """A picture and its content type, by a path such as ``NAME/SHA256``. Raises as `answer`."""
    match parts_of(path):
        case [id, "frame", purpose, step, group, sibling, segment, name, row]:
            stored = library.run(id).stored
            found = stored.group(stored.file(purpose, _place(step)), _place(group))
            return frame_of(found.group, _place(sibling), _place(segment), name, _place(row)), "image/png"
        case [id, "note", purpose, step, group, sibling, turn, number]:
            stored = library.run(id).stored
            found = stored.group(stored.file(purpose, _place(step)), _place(group))
            return note_picture(found, _place(sibling), _place(turn), _place(number))
        case [id, "small", purpose, step, group, sibling]:
            place = _place(step), _place(group), _place(sibling)
            return thumbnail(library.run(id).stored, purpose, *place), "image/jpeg"
        case [id, "film", *name]:
            return film_of(library.run(id).stored.run, "/".join(name))
        case [id, sha256]:
            return image_of(library.run(id).stored.run, sha256)
    raise _no_page(path)


def parts_of(path: str) -> list[str]:
    """The parts of a path. A slash in a part is escaped in the path."""
    return [unquote(part) for part in path.split("/")]


def _of_run(run: ShownRun, rest: list[str], query: Mapping[str, str]) -> Any:
    match rest:
        case []:
            return run.whole()
        case ["state"]:
            return run.state()
        case ["findings"]:
            return {"findings": run.findings()}
        case ["metrics"]:
            return run.metrics(_number(query, "after", 0))
        case ["find"]:
            names = ("where", "text", "sort", "purpose", "steps", "task")
            texts = {name: query.get(name, "") for name in names}
            found = find(run.stored, Question(**texts, limit=_number(query, "limit", LIMIT)))
            return found | {"pictures": have_pictures(run.stored, found["rows"])}
        case [purpose, step, *inside] if purpose in PURPOSES:
            return _of_step(run, purpose, _place(step), inside)
    raise _no_page("/".join(rest))


def _of_step(run: ShownRun, purpose: str, step: int, inside: list[str]) -> Any:
    file = run.stored.file(purpose, step)
    match inside:
        case []:
            rows = run.stored.rows(file)
            pictures = have_pictures(run.stored, rows)
            return {"rows": [row_data(row) for row in rows], "unfinished": file.unfinished, "pictures": pictures}
        case ["extremes"]:
            return extremes(run.stored, file)
        case [group]:
            return group_data(run.stored, run.stored.group(file, _place(group)))
        case [group, sibling, "tokens"]:
            return tokens_data(run.stored, run.stored.group(file, _place(group)), _place(sibling))
    raise _no_page("/".join(inside))


def _place(part: str) -> int:
    """A number of a path."""
    if not _NUMBER.fullmatch(part):
        raise _no_page(part)
    return int(part)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if text and not _NUMBER.fullmatch(text):
        raise UserError(f"{name} must be a number that is not negative", found=repr(text[:40]))
    return int(text) if text else default


def _no_page(path: str) -> NotFoundError:
    return NotFoundError(f"there is nothing at {path[:80]!r}", fix="start at the list of runs")


__all__ = ["answer", "media"]
