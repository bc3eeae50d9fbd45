"""The dataset ``preferences``: files of prompts with a chosen and a rejected answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from rlcore.data.chat import SAMPLES, written_texts
from rlcore.data.chat_files import ChatFiles, ChatFilesConfig
from rlcore.data.chat_rows import images_in
from rlcore.data.preference_rows import preference
from rlcore.data.row_images import ImageReader
from rlcore.types import Demonstration, Preference, Task


class PreferenceDataConfig(ChatFilesConfig):
    """``[data]`` of ``preferences``."""

    id: str = "preferences"
    """Id of the dataset."""


@dataclass(slots=True)
class _Split:
    preferences: list[Preference] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    skipped: int = 0


class PreferenceData:
    """Preferences in file order. A split is read once, on first use."""

    def __init__(self, config: PreferenceDataConfig) -> None:
        self._files = ChatFiles(config)
        self._splits: dict[str, _Split] = {}

    def preferences(self, split: str) -> Sequence[Preference]:
        """All preferences of ``train`` or ``evaluation``.

        Raises:
            DataError: a file cannot be read, a row is invalid (unless rows are skipped), or no row is valid.
        """
        return self._split(split).preferences

    def tasks(self, split: str) -> Sequence[Task]:
        """One task per preference: its prompt, with the other fields of the row. Raises like `preferences`."""
        return self._split(split).tasks

    def skipped(self, split: str) -> int:
        """The number of invalid rows that were skipped (``on_error = "skip"``)."""
        return self._split(split).skipped

    def texts(self) -> Iterable[str]:
        """Texts, tools and tool calls, for tokenizers that are built for the run."""
        pairs = self.preferences("train")[:SAMPLES]
        return chain.from_iterable(
            written_texts(Demonstration(messages=(*one.prompt, *one.chosen, *one.rejected), tools=one.tools))
            for one in pairs
        )

    def _split(self, split: str) -> _Split:
        if split not in self._splits:
            loaded = _Split()

            def parsed(id: str, row: Any, reader: ImageReader) -> Preference:
                one, fields = preference(row, reader)
                images = images_in(one.prompt, reader)
                loaded.tasks.append(Task(id=id, messages=one.prompt, fields=fields, images=images))
                return one

            loaded.preferences, loaded.skipped = self._files.rows(split, parsed, "preference")
            self._splits[split] = loaded
        return self._splits[split]
