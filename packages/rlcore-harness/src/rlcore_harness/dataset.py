"""The dataset: files with prompts, or the tasks of the example."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlcore.data.files import data_files, file_rows, row_place
from rlcore.data.forms import task_row
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, Task

from rlcore_harness.config import DataConfig
from rlcore_harness.example import boxes

GENERATED = "generated"
ROLES = ("system", "user")
TOKENIZER_SAMPLES = 500


class HarnessData:
    """Tasks with a prompt. All other fields of a row are in the task's fields."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in file order, with ids ``FILE:ROW``."""
        names = self._config.train if split == "train" else self._config.evaluation
        return [task for name in names for task in (boxes.tasks(split) if name == GENERATED else _read(name, split))]

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Demonstrations of the generated tasks.

        Raises:
            DataError: the tasks are those of files.
        """
        if self._config.train != [GENERATED]:
            fix = "set warmup.steps=0, or fine-tune before with the trainer sft"
            raise DataError("the tasks of files have no demonstrations", where="data.train", fix=fix)
        return boxes.demonstrations(count, seed=seed)

    def texts(self) -> Iterable[str]:
        """Texts for training a tokenizer."""
        if self._config.train != [GENERATED]:
            for task in self.tasks("train")[:TOKENIZER_SAMPLES]:
                yield from (message.text for message in task.messages)
            return
        for shown in boxes.demonstrations(TOKENIZER_SAMPLES, seed=0):
            for message in shown.messages:
                yield message.text
                for call in message.tool_calls:
                    yield f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments or {})})}\n"


def _read(name: str, split: str) -> Iterator[Task]:
    for path in data_files(name, split):
        for number, row in file_rows(path):
            yield _task(row, f"{path.stem}:{number}", row_place(path, number))


def _task(row: Any, id: str, where: str) -> Task:
    if isinstance(row, DataError):
        raise DataError(row.message, found=row.found, where=where)
    if not isinstance(row, dict):
        raise DataError("a row must be an object with named fields", found=type(row).__name__, where=where)
    fields, _ = task_row(row)
    prompt = fields.pop("prompt", fields.pop("question", None))
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    good = isinstance(messages, list) and bool(messages)
    for message in messages if isinstance(messages, list) else ():
        good = good and isinstance(message, dict) and message.get("role") in ROLES
        good = good and isinstance(message.get("content"), str)
    if not good or not isinstance(messages, list):
        raise DataError(
            "a row needs a field 'prompt' or 'question': text, or messages of the system and the user with text",
            found=f"the fields {', '.join(sorted(map(str, row)))}",
            where=where,
        )
    made = tuple(Message(role=message["role"], content=message["content"]) for message in messages)
    return Task(id=id, messages=made, fields=fields)
