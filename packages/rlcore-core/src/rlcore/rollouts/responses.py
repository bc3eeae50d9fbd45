"""The responses of a file of rollouts, for tables of trajectories, which are made without reading the groups.

``evidence/train-000007.responses.jsonl.gz`` has a row for each trajectory of the record, in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rlcore.errors import DataError
from rlcore.rollouts.index import ROW, Row, evidence_file, read_index, read_lines, rows_of
from rlcore.rollouts.records import purpose_and_step, read_groups
from rlcore.types import Group

RESPONSES = "responses.jsonl.gz"
COLUMNS = {**{name: ROW[name] for name in ("group", "sibling")}, "images": ROW["tokens"], "response": ROW["task"]}


def responses_of(groups: Iterable[Group]) -> Iterator[Row]:
    """What the table has besides the index: the number of images, the whole failure, and the last message."""
    for place, group in enumerate(groups):
        for one in group.trajectories:
            yield {
                "group": place,
                "sibling": one.sibling,
                "images": len(one.images),
                "failure": str(one.failure) if one.failure is not None else None,
                "response": one.final_response,
            }


def table_of(purpose: str, step: int, groups: Iterable[Group]) -> Iterator[Row]:
    """The rows of groups with their responses."""
    for group in groups:
        rows = rows_of(group, {"purpose": purpose, "step": step}, {}, {})
        yield from (row | response for row, response in zip(rows, responses_of([group]), strict=True))


def read_table(path: Path) -> Iterator[Row]:
    """The rows of a file with their responses, computed from the groups where these are not stored.

    Raises:
        DataError: the file is damaged.
    """
    purpose, step = purpose_and_step(path)
    with suppress(DataError):
        responses = read_lines(evidence_file(path, RESPONSES), COLUMNS)
        rows = [row for row in read_index(path) if row["step"] == step] if responses else []
        if responses and _places(rows) == _places(responses):
            return iter([row | response for row, response in zip(rows, responses, strict=True)])
    return table_of(purpose, step, read_groups(path, decode_bytes=str.encode))


def _places(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return [(row["group"], row["sibling"]) for row in rows]


__all__ = ["RESPONSES", "read_table", "responses_of", "table_of"]
