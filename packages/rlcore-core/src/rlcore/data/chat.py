"""The dataset ``chat``: files of conversations for supervised training."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from pydantic import model_validator

from rlcore.data.chat_files import ChatFiles, ChatFilesConfig
from rlcore.data.chat_rows import conversation, images_in
from rlcore.data.forms import task_row
from rlcore.data.row_images import ImageReader
from rlcore.errors import DataError
from rlcore.types import Demonstration, Task, ToolSchema, thaw

FORM_FIELDS = ("messages", "conversations", "prompt", "completion", "instruction")
"""Fields by which the form of a row is recognised."""
SAMPLES = 2000
"""Maximum number of conversations to train a tokenizer on."""


class ChatDataConfig(ChatFilesConfig):
    """``[data]`` of ``chat``."""

    id: str = "chat"
    """Id of the dataset."""
    messages: str | None = None
    """Field of a row with its messages. None recognises the form of the rows."""
    prompt: str | None = None
    """Field with the prompt, such as ``extra_info.question``, if another one has the completion."""
    completion: str | None = None
    """Field with the completion, such as ``extra_info.answer``."""

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
        self._files = ChatFiles(config)

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
        return chain.from_iterable(map(written_texts, self.conversations("train")[:SAMPLES]))

    def _split(self, split: str) -> _Split:
        if split not in self._splits:
            self._splits[split] = self._load(split)
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        loaded = _Split()

        def parsed(id: str, row: Any, reader: ImageReader) -> Demonstration:
            row = self._named(row)
            one, fields = conversation(row, reader)
            loaded.mappings |= {task_row(row).mapping: None} if isinstance(row, dict) else {}
            first = next(place for place, message in enumerate(one.messages) if message.role == "assistant")
            if first:
                before = one.messages[:first]
                loaded.tasks.append(Task(id=id, messages=before, fields=fields, images=images_in(before, reader)))
            return one

        loaded.conversations, loaded.skipped = self._files.rows(split, parsed, "conversation")
        return loaded

    def _named(self, row: Any) -> Any:
        """The row with the configured fields in place of those of other forms."""
        names = {name: getattr(self._config, name) for name in ("messages", "prompt", "completion")}
        if not any(names.values()) or not isinstance(row, dict):
            return row
        rest = {key: value for key, value in row.items() if key not in FORM_FIELDS}
        return rest | {name: _field(row, path) for name, path in names.items() if path is not None}


def _field(row: Mapping[str, Any], path: str) -> Any:
    """The value of a field, or of one in an object: ``extra_info.question``."""
    value: Any = row
    for part in [path] if path in row else path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DataError(f"the row has no field {path!r}", found=f"the fields {', '.join(map(str, row))}")
        value = value[part]
    return value


def written_texts(one: Demonstration) -> Iterator[str]:
    """The texts, tools and tool calls of a conversation, from which a tokenizer is built."""
    yield from (_described(tool) for tool in one.tools)
    for message in one.messages:
        yield message.text.encode("utf-8", "replace").decode()  # replace lone surrogates
        for call in message.tool_calls:
            written = json.dumps({"name": call.name, "arguments": thaw(call.arguments)}, ensure_ascii=False)
            yield f"<tool_call>\n{written}\n</tool_call>"


def _described(tool: ToolSchema) -> str:
    return f"tools: {tool.name}({', '.join(tool.parameters['properties'])}) {tool.description}"
