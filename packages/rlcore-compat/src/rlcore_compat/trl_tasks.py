"""Tasks of environments that were written for TRL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from rlcore.data.files import data_files, file_rows, row_place
from rlcore.errors import DataError
from rlcore.types import Message, Role, Task

from rlcore_compat.trl_config import TrlDataConfig

ROLES = ("system", "user")


class TrlTasks:
    """Rows of files, or tasks without fields, which differ in their seeds."""

    def __init__(self, config: TrlDataConfig) -> None:
        self._config = config

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of ``train`` or ``evaluation``, with ids ``SPLIT:NUMBER`` or ``FILE:ROW``."""
        given = self._config.train if split == "train" else self._config.evaluation
        if isinstance(given, int):
            return [Task(id=f"{split}:{number}", messages=()) for number in range(given)]
        return [task for name in given for task in _read(name, split)]


def _read(name: str, split: str) -> Iterator[Task]:
    for path in data_files(name, split):
        for number, row in file_rows(path):
            where = row_place(path, number)
            if isinstance(row, DataError):
                raise DataError(row.message, found=row.found, where=where)
            if not isinstance(row, dict):
                raise DataError("a row must be an object with named columns", found=type(row).__name__, where=where)
            fields = dict(row)
            yield Task(id=f"{path.stem}:{number}", messages=_prompt(fields.pop("prompt", []), where), fields=fields)


def _prompt(prompt: Any, where: str) -> tuple[Message, ...]:
    entries = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    good = isinstance(entries, list) and all(
        isinstance(one, dict) and one.get("role") in ROLES and isinstance(one.get("content"), str) for one in entries
    )
    if not good:
        raise DataError(
            "the column 'prompt' must be a text, or messages of the system and the user with text",
            found=repr(prompt)[:80],
            where=where,
        )
    return tuple(Message(role=cast(Role, one["role"]), content=one["content"]) for one in entries)


__all__ = ["TrlTasks"]
