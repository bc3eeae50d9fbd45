"""The dataset ``chat``: files of conversations for supervised training."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from rlcore.config.schema import LARGEST, Table
from rlcore.console.wording import counted
from rlcore.data.chat_rows import conversation, images_in, short
from rlcore.data.row_images import ImageReader
from rlcore.errors import DataError
from rlcore.json_files import json_lines, open_regular, parse_json, read_text
from rlcore.types import Demonstration, Task, ToolSchema, thaw

_BETWEEN = re.compile(r"[\s,]*")
SAMPLES = 2000
"""Maximum number of conversations to train a tokenizer on."""
Files = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class ChatDataConfig(Table):
    """``[data]`` of ``chat``."""

    id: str = "chat"
    """Id of the dataset."""
    train: Annotated[Files, Field(min_length=1)]
    """Files of conversations, .jsonl or .json."""
    evaluation: Files = []
    """Files of held-out conversations, used to select the best checkpoint."""
    images: str | None = None
    """Folder that the paths of images are relative to and must not leave; None is the folder of the file."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an invalid row stops the run, or is skipped and counted."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Number of conversations to use from each split, from the start; None uses all."""


@dataclass(slots=True)
class _Split:
    conversations: list[Demonstration] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    skipped: int = 0


class ChatData:
    """Conversations in file order. A split is read once, on first use."""

    def __init__(self, config: ChatDataConfig) -> None:
        self._config = config
        self._splits: dict[str, _Split] = {}
        self._readers: dict[Path, ImageReader] = {}

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """All conversations of ``train`` or ``evaluation``.

        Raises:
            DataError: a file cannot be read, a row is invalid (unless rows are skipped), or no row is valid.
        """
        return self._split(split).conversations

    def tasks(self, split: str) -> Sequence[Task]:
        """One task per conversation: the messages before the first assistant message, if there are any.

        Ids are ``FILE:LINE``. Other fields of the row become fields of the task. Raises like `conversations`.
        """
        return self._split(split).tasks

    def skipped(self, split: str) -> int:
        """The number of invalid rows that were skipped (``on_error = "skip"``)."""
        return self._split(split).skipped

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Training conversations, shuffled anew in each pass."""
        rng, known = random.Random(seed), self.conversations("train")
        return islice(chain.from_iterable(rng.sample(known, len(known)) for _ in repeat(None)), count)

    def texts(self) -> Iterable[str]:
        """Texts, tools and tool calls, for tokenizers that are built for the run."""
        for one in self.conversations("train")[:SAMPLES]:
            yield from (_described(tool) for tool in one.tools)
            for message in one.messages:
                yield message.text.encode("utf-8", "replace").decode()  # replace lone surrogates
                for call in message.tool_calls:
                    written = json.dumps({"name": call.name, "arguments": thaw(call.arguments)}, ensure_ascii=False)
                    yield f"<tool_call>\n{written}\n</tool_call>"

    def _split(self, split: str) -> _Split:
        if split not in ("train", "evaluation"):
            raise DataError("the split must be train or evaluation", found=split)
        if split not in self._splits:
            self._splits[split] = self._load(split)
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        config, loaded = self._config, _Split()
        names = config.train if split == "train" else config.evaluation
        for file, line, row in chain.from_iterable(_rows(Path(name).expanduser()) for name in names):
            where = f"{file}, line {line}"
            try:
                if isinstance(row, DataError):
                    raise row
                reader = self._reader(file)
                one, fields = conversation(row, reader)
            except DataError as error:
                if config.on_error == "raise":
                    fix = error.fix or "correct the row, or skip invalid rows with data.on_error=skip"
                    raise DataError(error.message, found=error.found, where=where, fix=fix) from None
                loaded.skipped += 1
                continue
            loaded.conversations.append(one)
            first = next(place for place, message in enumerate(one.messages) if message.role == "assistant")
            if first:
                before = one.messages[:first]
                images = images_in(before, reader)
                loaded.tasks.append(Task(id=f"{file.stem}:{line}", messages=before, fields=fields, images=images))
            if len(loaded.conversations) == config.limit:
                break
        if names and not loaded.conversations:
            raise DataError(
                f"data.{split} has no valid conversation",
                found=f"{counted(loaded.skipped, 'invalid row')}" if loaded.skipped else "no rows",
                where=", ".join(names),
                fix="data.on_error=raise shows the first problem" if loaded.skipped else "add rows to the file",
            )
        return loaded

    def _reader(self, file: Path) -> ImageReader:
        """The reader of the images of a file, which files of one folder share."""
        named = self._config.images
        folder = Path(named).expanduser() if named is not None else file.parent
        return self._readers.setdefault(folder, ImageReader(folder))


def _rows(path: Path) -> Iterator[tuple[Path, int, Any]]:
    """File, line, and the row or its `DataError`."""
    readers = {".jsonl": _jsonl, ".json": _json}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        fix = "rename the file to match its format"
        raise DataError("conversation files must end in .jsonl or .json", found=path.name, where=str(path), fix=fix)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        fix = "correct data.train or data.evaluation"
        raise DataError("a data file is missing", found=found, where=str(path.absolute()), fix=fix)
    try:
        for line, row in reader(path):
            yield path, line, row
    except UnicodeDecodeError as error:
        fix = "convert the file to UTF-8"
        raise DataError("data files must be UTF-8", found=str(error), where=str(path), fix=fix) from None
    except (OSError, ValueError) as error:
        fix = "restore the file, or split it"
        raise DataError("a data file cannot be read", found=str(error), where=str(path), fix=fix) from None


def _jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    with open_regular(path) as file:
        for number, line in json_lines(file):
            text = line.decode("utf-8")
            try:
                row = parse_json(text)
            except ValueError as error:
                row = DataError("each line of a .jsonl file must be valid JSON", found=str(error))
            yield number, row


def _json(path: Path) -> Iterator[tuple[int, Any]]:
    """The items of a JSON list, each with its line number."""
    text, fix = read_text(path), "correct the list, or use the suffix .jsonl if each line is a separate object"
    try:
        rows = parse_json(text)
    except ValueError as error:
        where = f"{path}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        raise DataError("a .json file must contain one JSON list", found=str(error), where=where, fix=fix) from None
    if not isinstance(rows, list):
        raise DataError("a .json file must contain a list of rows", found=short(text[:40]), where=str(path), fix=fix)
    decoder, place, line = json.JSONDecoder(), text.index("[") + 1, 1 + text.count("\n", 0, text.index("["))
    for row in rows:
        start = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
        line += text.count("\n", place, start)
        yield line, row
        _, place = decoder.raw_decode(text, start)
        line += text.count("\n", start, place)


def _described(tool: ToolSchema) -> str:
    return f"tools: {tool.name}({', '.join(tool.parameters['properties'])}) {tool.description}"
