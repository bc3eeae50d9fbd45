"""The dataset: files with questions and answers, or generated problems."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from rlcore.console.wording import counted
from rlcore.data.files import data_files
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, Task

from rl_plugin_gsm8k_tools import problems
from rl_plugin_gsm8k_tools.calculator import calculator
from rl_plugin_gsm8k_tools.config import DataConfig
from rl_plugin_gsm8k_tools.demonstrations import UnusableSolution, demonstrate, messages_of
from rl_plugin_gsm8k_tools.rows import BadRow, Row, read_rows

GENERATED = "generated"
SPLITS = ("train", "evaluation")
TOKENIZER_SAMPLES = 2000


@dataclass(slots=True)
class _Split:
    tasks: list[Task]
    skipped: int = 0
    mappings: dict[str, None] = field(default_factory=dict)


class Gsm8kData:
    """Tasks with a question and an expected ``answer``. All other fields of a row are in the task's fields."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._splits: dict[str, _Split] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in file order, with ids ``FILE:ROW``."""
        return self._split(split).tasks

    def skipped(self, split: str) -> int:
        """Number of invalid rows of a split (``on_error = "skip"``)."""
        return self._split(split).skipped

    def mappings(self, split: str) -> Sequence[str]:
        """How rows of other systems were read."""
        return list(filter(None, self._split(split).mappings))

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Conversations with the calculator.

        Generated demonstrations come from `problems.demonstrations`. Those of files come from prepared rows
        (``demonstration``) or GSM8K's annotations, in shuffled rounds.

        Raises:
            DataError: the training files contain no solution with valid annotations.
        """
        if self._config.train == [GENERATED]:
            conversations = problems.demonstrations(count, seed=seed)
        else:
            conversations = self._demonstrations_of_files(count, seed)
        for messages in conversations:
            yield Demonstration(messages=messages, tools=(calculator.schema,))

    def texts(self) -> Iterable[str]:
        """Questions, calls and answers for training a tokenizer."""
        yield f"tools: {calculator.name}({', '.join(calculator.schema.parameters['properties'])})"
        for messages in problems.demonstrations(TOKENIZER_SAMPLES, seed=0):
            yield from _texts_of(messages)
        if self._config.train != [GENERATED]:
            for task in self.tasks("train")[:TOKENIZER_SAMPLES]:
                yield from _texts_of(_conversation(task) or task.messages)

    def _split(self, split: str) -> _Split:
        if split not in SPLITS:
            raise DataError("unknown split", found=split, fix="use train or evaluation")
        if split not in self._splits:
            self._splits[split] = self._load(split)
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        config = self._config
        names = config.train if split == "train" else config.evaluation
        loaded = _Split(tasks=[])
        for name, row in self._rows(names, split):
            if isinstance(row, BadRow):
                if config.on_error == "raise":
                    error = row.error
                    fix = error.fix or "correct the row, or skip invalid rows with data.on_error=skip"
                    raise DataError(error.message, found=error.found, where=error.where, fix=fix)
                loaded.skipped += 1
            elif isinstance(row, Task):
                loaded.tasks.append(row)
            else:
                loaded.tasks.append(Task(id=name, messages=row.messages, fields=row.fields))
                loaded.mappings[row.mapping] = None
            if config.limit is not None and len(loaded.tasks) >= config.limit:
                break
        if not loaded.tasks:
            raise DataError(
                f"data.{split} has no valid row",
                found=counted(loaded.skipped, "invalid row") if loaded.skipped else "no rows",
                where=", ".join(names),
                fix="set data.on_error=raise to see the first error" if loaded.skipped else "add rows",
            )
        return loaded

    def _rows(self, names: Sequence[str], split: str) -> Iterator[tuple[str, Row | BadRow | Task]]:
        stems = [Path(name).stem for name in names]
        for name, stem in zip(names, stems, strict=True):
            if name == GENERATED:
                yield from ((task.id, task) for task in problems.tasks(split))
                continue
            prefix = stem if stems.count(stem) == 1 else name
            rows = chain.from_iterable(map(read_rows, data_files(name, split)))
            for number, row in enumerate(rows, start=1):
                yield f"{prefix}:{number}", row

    def _demonstrations_of_files(self, count: int, seed: int) -> Iterator[tuple[Message, ...]]:
        found = [messages for task in self.tasks("train") if (messages := _conversation(task))]
        if not found:
            raise DataError(
                "the warm-up needs demonstrations",
                found="no training row with a 'demonstration' or a solution with correct <<…>> annotations",
                where=", ".join(self._config.train),
                fix="run rlcore data prepare gsm8k-tools source=train.jsonl out=prepared.jsonl, or set warmup.steps=0",
            )
        return islice(_rounds(found, random.Random(seed)), count)


def _rounds(found: list[tuple[Message, ...]], rng: random.Random) -> Iterator[tuple[Message, ...]]:
    while True:
        yield from rng.sample(found, len(found))


def _conversation(task: Task) -> tuple[Message, ...] | None:
    """The demonstration of a task; None if it has no valid one."""
    if (messages := messages_of(task.fields)) is not None:
        return messages
    solution = task.fields.get("solution")
    if not isinstance(solution, str) or len(task.messages) != 1:
        return None
    try:
        return demonstrate(task.messages[0].text, solution, str(task.fields["answer"]))
    except UnusableSolution:
        return None


def _texts_of(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        if message.text:
            yield message.text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be encoded
        for call in message.tool_calls:
            expression = (call.arguments or {}).get("expression", "")
            yield f'<tool_call>\n{{"name": "{call.name}", "arguments": {{"expression": "{expression}"}}}}\n</tool_call>'
