"""Rows of NeMo Gym as tasks: a request to a model, and what its server needs to verify the answer."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlcore.data.files import data_files, file_rows, row_place
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, Role, Task, ToolCall

from rl_plugin_openenv.config import DEMO, RowsConfig
from rl_plugin_openenv.nemo_gym_demo import LARGEST_COUNT, demo_rows
from rl_plugin_openenv.schemas import tools_of

ROLES: Mapping[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
CAREFUL = 0.4
"""Share of the demonstrations that do not choose the number at random."""
RESERVED = frozenset({"verify", "seed_session", "aggregate_metrics", "reverify_mode", "mcp"})
"""Routes of every server, which no tool may have."""


class Rows:
    """Tasks with the messages of ``responses_create_params.input``. The whole row is the field ``row``."""

    def __init__(self, config: RowsConfig) -> None:
        self._config = config

    def tasks(self, split: str) -> Sequence[Task]:
        """All rows of a split, in the order of the file.

        Raises:
            DataError: a row cannot be used.
        """
        name = self._config.evaluation if split == "evaluation" else self._config.train
        if name == DEMO:
            rows = demo_rows(held_out=split == "evaluation")
            return [_task(row, f"demo:{number}", DEMO) for number, row in enumerate(rows)]
        return list(_read(name, split))

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Episodes of the demo, many with a random number in place of the right one.

        Raises:
            DataError: the rows are those of a file.
        """
        if self._config.train != DEMO:
            fix = "set warmup.steps=0, or fine-tune before with the trainer sft"
            raise DataError("the rows of files have no demonstrations", where="data.train", fix=fix)
        return _demonstrations(self.tasks("train"), count, random.Random(seed))


def _demonstrations(tasks: Sequence[Task], count: int, chosen: random.Random) -> Iterator[Demonstration]:
    for _ in range(count):
        task = chosen.choice(tasks)
        row = task.fields["row"]
        tools = tools_of(list(row["responses_create_params"]["tools"]))
        times = row["wanted"] if chosen.random() < CAREFUL else chosen.randint(1, LARGEST_COUNT)
        call = ToolCall(name=tools[0].name, arguments={"times": times}, id="0")
        yield Demonstration(
            messages=(
                *task.messages,
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", content='{"pressed": true}', name=call.name, tool_call_id="0"),
                Message(role="assistant", content="done"),
            ),
            tools=tools,
        )


def _read(name: str, split: str) -> Iterator[Task]:
    for path in data_files(name, split):
        for number, row in file_rows(path):
            if isinstance(row, DataError):
                raise DataError(row.message, found=row.found, where=row_place(path, number), fix=row.fix)
            yield _task(row, f"{path.stem}:{number}", row_place(path, number))


def _task(row: Any, id: str, where: str) -> Task:
    asked = row.get("responses_create_params") if isinstance(row, dict) else None
    if not isinstance(asked, dict):
        found, fix = "no object responses_create_params", "use rows of NeMo Gym"
        raise DataError("a row of NeMo Gym needs a request to a model", found=found, where=where, fix=fix)
    given = asked.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise DataError("a row of NeMo Gym needs an input", found=repr(given)[:80], where=where)
    messages = [_message(item, where) for item in items]
    if isinstance(instructions := asked.get("instructions"), str):
        messages.insert(0, Message(role="system", content=instructions))
    tools = asked.get("tools") or []
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    if taken := RESERVED.intersection(map(str, names)):
        raise DataError("a tool has the name of a route of every server", found=min(taken), where=where)
    return Task(id=id, messages=tuple(messages), fields={"row": row})


def _message(item: Any, where: str) -> Message:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, dict) else (None, None)
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        found = [text for text in texts if isinstance(text, str)]
        content = "\n".join(found) if len(found) == len(texts) else None
    if not isinstance(role, str) or role not in ROLES or not isinstance(content, str):
        raise DataError(
            "the input of a row must consist of messages with text",
            found=repr(item)[:80],
            where=where,
            fix="leave out rows with images, or with calls of tools before the first answer",
        )
    return Message(role=ROLES[role], content=content)


__all__ = ["Rows"]
