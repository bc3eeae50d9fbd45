"""The dataset ``visual-search``: questions about pictures from files, or about drawn pictures."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path

from rlcore import DataError, Demonstration, Task
from rlcore.data.row_images import ImageReader
from rlcore.types import thaw

from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.data.choices import choice_of
from rl_plugin_visual_search.data.conversations import conversation_of, is_conversation
from rl_plugin_visual_search.data.files import files_of, folder_of, rows_in
from rl_plugin_visual_search.data.rows import Reason, Row, UnusableRow, row_of
from rl_plugin_visual_search.data.tasks import as_task
from rl_plugin_visual_search.drawn.source import drawn_demonstrations, drawn_rows
from rl_plugin_visual_search.prompts import MODULES

GENERATED = "generated"
SPLITS = ("train", "evaluation")
TOKENIZER_SAMPLES = 2000


@dataclass(slots=True)
class _Split:
    tasks: list[Task] = field(default_factory=list)
    conversations: list[Demonstration] = field(default_factory=list)
    skipped: Counter[Reason] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.tasks) + len(self.conversations)


class VisualSearchData:
    """Tasks, and conversations for supervised training, in file order. A split is read once, on first use.

    Args:
        config: its options
        importable: finds out which modules code can import, which prompts state; as in `rlcore.specs.DatasetSpec`
    """

    def __init__(
        self, config: DataConfig, *, importable: Callable[[Sequence[str]], Sequence[str] | None] | None = None
    ) -> None:
        self._config, self._find_importable = config, importable
        self._splits: dict[str, _Split] = {}
        self._readers: dict[Path, ImageReader] = {}
        self._names: dict[Path, str] = {}
        """What ids say about each file."""

    def tasks(self, split: str) -> Sequence[Task]:
        """All questions of ``train`` or ``evaluation``, with ids ``FILE:ROW``.

        Raises:
            DataError: a file cannot be read, a row cannot be used (unless rows are skipped), or no row can be used.
        """
        return self._split(split).tasks

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """All recorded conversations of ``train`` or ``evaluation``; empty for drawn pictures. Raises as `tasks`."""
        if split in SPLITS and {*self._names_of(split)} == {GENERATED}:
            return ()
        return self._split(split).conversations

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Conversations about drawn pictures, or recorded ones, shuffled anew in each pass.

        Raises:
            DataError: the files have no conversation.
        """
        if GENERATED in self._config.train:
            return drawn_demonstrations(self._config, count, seed=seed, importable=self._importable)
        rng, known = random.Random(seed), self.conversations("train")
        if not known:
            fix = "add a file of conversations to data.train; a warm-up is left out with warmup.steps=0"
            where = ", ".join(self._config.train)
            raise DataError("demonstrations need conversations", found="questions alone", where=where, fix=fix)
        return islice(chain.from_iterable(rng.sample(known, len(known)) for _ in repeat(None)), count)

    def skipped(self, split: str) -> int:
        """Number of rows of a split that cannot be used (``on_error = "skip"``)."""
        return self._split(split).skipped.total()

    def skipped_by_reason(self, split: str) -> Mapping[str, int]:
        """`skipped` by `Reason`."""
        return {str(reason): count for reason, count in self._split(split).skipped.most_common()}

    def texts(self) -> Iterable[str]:
        """Texts of conversations, with their tools and calls, or of questions, for training a tokenizer."""
        if GENERATED in self._config.train or self.conversations("train"):
            found: Iterable[Demonstration | Task] = self.demonstrations(TOKENIZER_SAMPLES, seed=0)
        else:
            found = self.tasks("train")[:TOKENIZER_SAMPLES]
        for one in found:
            if isinstance(one, Demonstration):
                yield from (f"tools: {tool.name}({', '.join(tool.parameters['properties'])})" for tool in one.tools)
            for message in one.messages:
                yield message.text.encode("utf-8", "replace").decode()
                for call in message.tool_calls:
                    yield json.dumps({"name": call.name, "arguments": thaw(call.arguments)}, ensure_ascii=False)

    @cached_property
    def _importable(self) -> Sequence[str] | None:
        """The modules that prompts promise. They are found once, and only if a prompt states them."""
        stated = self._config.tools == "code" and self._config.style != "plain"
        return self._find_importable(MODULES) if stated and self._find_importable is not None else None

    def _split(self, split: str) -> _Split:
        if split not in SPLITS:
            raise DataError("unknown split", found=split, fix="use train or evaluation")
        if split not in self._splits:
            self._splits[split] = self._load(split)
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        config, loaded = self._config, _Split()
        names = self._names_of(split)
        for each in chain.from_iterable(self._rows(name, split, loaded.skipped) for name in names):
            if isinstance(each, Demonstration):
                loaded.conversations.append(each)
            else:
                loaded.tasks.append(
                    as_task(
                        self._asked(each),
                        tools=config.tools,
                        style=config.style,
                        coordinates=config.coordinates,
                        shown=config.show_pictures,
                        importable=self._importable,
                    )
                )
            if len(loaded) == config.limit:
                break
        if not loaded:
            skipped = ", ".join(f"{reason}: {count}" for reason, count in loaded.skipped.most_common())
            where, fix = ", ".join(names), "set data.on_error=raise to see the first error" if skipped else "add rows"
            raise DataError(f"data.{split} has no usable row", found=skipped or "no rows", where=where, fix=fix)
        return loaded

    def _names_of(self, split: str) -> Sequence[str]:
        return self._config.train if split == "train" else self._config.evaluation

    def _asked(self, row: Row) -> Row:
        """The row with its options in the order of the seed, or of the file if its own prompt lists them."""
        own = self._config.style == "row" and row.prompt
        return choice_of(row, seed=None if own else self._config.option_seed)

    def _rows(self, name: str, split: str, skipped: Counter[Reason]) -> Iterator[Row | Demonstration]:
        if name == GENERATED:
            yield from drawn_rows(self._config, split)
            return
        for path in files_of(name, f"data.{split}"):
            if path not in self._names:
                self._names[path] = path.name if path.name not in self._names.values() else str(path)
            folder = folder_of(self._config.images, path, "data.images")
            for number, value in rows_in(path):
                try:
                    yield self._row(path, folder, number, value)
                except UnusableRow as error:
                    if self._config.on_error == "raise":
                        other = ", set data.images to the folder of paths" if error.reason is Reason.PICTURE else ""
                        fix = f"correct the row{other}, or skip such rows with data.on_error=skip"
                        where = f"{path}, row {number}"
                        raise DataError(
                            f"unusable row, {error.reason}", found=error.found, where=where, fix=fix
                        ) from None
                    skipped[error.reason] += 1

    def _row(self, path: Path, folder: Path, number: int, value: object) -> Row | Demonstration:
        if isinstance(value, UnusableRow):
            raise value
        reader = self._readers.setdefault(folder, ImageReader(folder))
        if is_conversation(value):
            return conversation_of(value, reader)  # type: ignore[arg-type]
        return row_of(value, f"{self._names[path]}:{number}", reader)


__all__ = ["VisualSearchData"]
