"""The dataset ``chat``: files of conversations to imitate."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlcore.chat_rows import conversation, short
from rlcore.config.schema import Table
from rlcore.errors import DataError
from rlcore.types import Demonstration, Task, ToolSchema, thaw
from rlcore.wording import counted

SAMPLES = 2000
"""Conversations that are enough for a tokenizer to know the words."""
Files = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class ChatDataConfig(Table):
    """``[data]`` of ``chat``."""

    id: str = "chat"
    """The dataset."""
    train: Annotated[Files, Field(min_length=1)]
    """Files of conversations, .jsonl or .json."""
    evaluation: Files = []
    """Files of held-out conversations, by which the best checkpoint is chosen."""
    on_error: Literal["raise", "skip"] = "raise"
    """A row that cannot be used stops the run, or is left out and counted."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """How many conversations of each split, the first ones; None takes all."""


@dataclass(slots=True)
class _Split:
    conversations: list[Demonstration] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    skipped: int = 0


class ChatData:
    """Conversations in the order of their files. Each is read once, when its split is first asked for."""

    def __init__(self, config: ChatDataConfig) -> None:
        self._config = config
        self._splits: dict[str, _Split] = {}

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """All of ``train`` or ``evaluation``.

        Raises:
            DataError: a file cannot be read, a row cannot be used (unless such are skipped), or nothing is left.
        """
        return self._split(split).conversations

    def tasks(self, split: str) -> Sequence[Task]:
        """What stands before the assistant's first message, of the conversations where anything does.

        The ids are ``FILE:LINE``; the row's other fields are the task's. Raises as `conversations`.
        """
        return self._split(split).tasks

    def skipped(self, split: str) -> int:
        """How many rows of a split could not be used (``on_error = "skip"``)."""
        return self._split(split).skipped

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Training conversations in shuffled rounds."""
        rng, known = random.Random(seed), self.conversations("train")
        return islice(chain.from_iterable(rng.sample(known, len(known)) for _ in repeat(None)), count)

    def texts(self) -> Iterable[str]:
        """Texts, tools and calls, for tokenizers that are built on the spot."""
        for one in self.conversations("train")[:SAMPLES]:
            yield from (_described(tool) for tool in one.tools)
            for message in one.messages:
                yield message.text.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
                for call in message.tool_calls:
                    written = json.dumps({"name": call.name, "arguments": thaw(call.arguments)}, ensure_ascii=False)
                    yield f"<tool_call>\n{written}\n</tool_call>"

    def _split(self, split: str) -> _Split:
        if split not in ("train", "evaluation"):
            raise DataError("a split is train or evaluation", found=split)
        if split not in self._splits:
            self._splits[split] = self._load(split)
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        config, loaded = self._config, _Split()
        names = config.train if split == "train" else config.evaluation
        for name, line, where, row in chain.from_iterable(_rows(Path(name).expanduser()) for name in names):
            try:
                if isinstance(row, DataError):
                    raise row
                one, fields = conversation(row)
            except DataError as error:
                if config.on_error == "raise":
                    mend = error.mend or "correct the row, or leave such rows out with data.on_error=skip"
                    raise DataError(error.message, found=error.found, where=where, mend=mend) from None
                loaded.skipped += 1
                continue
            loaded.conversations.append(one)
            first = next(place for place, message in enumerate(one.messages) if message.role == "assistant")
            if first:
                loaded.tasks.append(Task(id=f"{name}:{line}", messages=one.messages[:first], fields=fields))
            if len(loaded.conversations) == config.limit:
                break
        if names and not loaded.conversations:
            raise DataError(
                f"data.{split} has no conversation that can be used",
                found=f"{counted(loaded.skipped, 'row')} that cannot be used" if loaded.skipped else "no rows",
                where=", ".join(names),
                mend="data.on_error=raise shows what is wrong with the first" if loaded.skipped else "give it rows",
            )
        return loaded


def _rows(path: Path) -> Iterator[tuple[str, int, str, Any]]:
    """Stem, line, place in words, and the row or the `DataError` about it."""
    readers = {".jsonl": _jsonl, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        mend = "rename the file after what it holds"
        raise DataError("files of conversations end in .jsonl or .json", found=path.name, where=str(path), mend=mend)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        mend = "correct data.train or data.evaluation"
        raise DataError("a data file is missing", found=found, where=str(path.absolute()), mend=mend)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("data files are UTF-8", found=str(error), where=str(path)) from None
    for line, row in reader(text, path):
        yield path.stem, line, f"{path}, line {line}", row


def _jsonl(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, DataError("a line of a .jsonl file must be JSON", found=str(error))


def _json(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """The members of one list, each with the line where it begins."""
    decoder = json.JSONDecoder()
    place, line = len(text) - len(text.lstrip()), 1
    if text[place : place + 1] != "[":
        mend = "give it the suffix .jsonl if each line is an object of its own"
        raise DataError("a .json file must hold a list of rows", found=short(text[:40]), where=str(path), mend=mend)
    seen, end = 0, _after_space(text, place + 1)
    if text[end : end + 1] == "]":
        return
    while True:
        place = _after_space(text, place + 1)
        line, seen = line + text.count("\n", seen, place), place
        try:
            row, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            where = f"{path}, line {line}"
            raise DataError("a .json file must hold a JSON list", found=str(error), where=where) from None
        yield line, row
        place = _after_space(text, place)
        if text[place : place + 1] == "]" and not text[place + 1 :].strip():
            return
        if text[place : place + 1] != ",":
            where = f"{path}, line {line + text.count(chr(10), seen, place)}"
            found = short(text[place : place + 40]) if place < len(text) else "the end of the file"
            raise DataError("a .json file must hold one JSON list", found=f"{found} behind a row", where=where)


def _after_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _described(tool: ToolSchema) -> str:
    return f"tools: {tool.name}({', '.join(tool.parameters['properties'])}) {tool.description}"


__all__ = ["ChatData", "ChatDataConfig"]
