"""The dataset ``chat``: files of conversations for supervised training."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from rlcore.config.schema import LARGEST, Table
from rlcore.console.wording import counted
from rlcore.data.chat_rows import conversation, images_in
from rlcore.data.files import data_files, file_rows, row_place
from rlcore.data.forms import task_row
from rlcore.data.row_images import ImageReader
from rlcore.errors import DataError
from rlcore.types import Demonstration, Task, ToolSchema, thaw

FORM_FIELDS = ("messages", "conversations", "prompt", "completion", "instruction")
"""Fields by which the form of a row is recognised."""
SAMPLES = 2000
"""Maximum number of conversations to train a tokenizer on."""
Files = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class ChatDataConfig(Table):
    """``[data]`` of ``chat``."""

    id: str = "chat"
    """Id of the dataset."""
    train: Annotated[Files, Field(min_length=1)]
    """Files of conversations (.jsonl, .json or .parquet), a folder of them, or a name in the hub's cache."""
    evaluation: Files = []
    """Files of held-out conversations, used to select the best checkpoint."""
    images: str | None = None
    """Folder that the paths of images are relative to and must not leave; None is the folder of the file."""
    messages: str | None = None
    """Field of a row with its messages. None recognises the form of the rows."""
    prompt: str | None = None
    """Field with the prompt, such as ``extra_info.question``, if another one has the completion."""
    completion: str | None = None
    """Field with the completion, such as ``extra_info.answer``."""
    on_error: Literal["raise", "skip"] = "raise"
    """Whether an invalid row stops the run, or is skipped and counted."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Number of conversations to use from each split, from the start; None uses all."""

    @model_validator(mode="after")
    def _check_fields(self) -> ChatDataConfig:
        if (self.prompt is None) != (self.completion is None) or None not in (self.messages, self.prompt):
            raise ValueError("give prompt and completion, or messages, or none of them")
        return self


@dataclass(slots=True)
class _Split:
    conversations: list[Demonstration] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    skipped: int = 0
    mappings: dict[str, None] = field(default_factory=dict)
    """How rows of other systems were read."""


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

    def mappings(self, split: str) -> Sequence[str]:
        """How rows of other systems were read."""
        return list(filter(None, self._split(split).mappings))

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
        files = [file for name in names for file in data_files(name, split)]
        for file, (line, row) in ((path, one) for path in files for one in file_rows(path)):
            where = row_place(file, line)
            try:
                if isinstance(row, DataError):
                    raise row
                row, reader = self._named(row), self._reader(file)
                one, fields = conversation(row, reader)
                loaded.mappings |= {task_row(row).mapping: None} if isinstance(row, dict) else {}
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

    def _named(self, row: Any) -> Any:
        """The row with the configured fields in place of those of other forms."""
        names = {name: getattr(self._config, name) for name in ("messages", "prompt", "completion")}
        if not any(names.values()) or not isinstance(row, dict):
            return row
        rest = {key: value for key, value in row.items() if key not in FORM_FIELDS}
        return rest | {name: _field(row, path) for name, path in names.items() if path is not None}

    def _reader(self, file: Path) -> ImageReader:
        """The reader of the images of a file, which files of one folder share."""
        named = self._config.images
        folder = Path(named).expanduser() if named is not None else file.parent
        return self._readers.setdefault(folder, ImageReader(folder))


def _field(row: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of one in an object: ``extra_info.question``."""
    value: Any = row
    for part in [path] if path in row else path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DataError(f"the row has no field {path!r}", found=f"the fields {', '.join(map(str, row))}")
        value = value[part]
    return value


def _described(tool: ToolSchema) -> str:
    return f"tools: {tool.name}({', '.join(tool.parameters['properties'])}) {tool.description}"
