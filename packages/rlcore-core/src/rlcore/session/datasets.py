"""The datasets of a run: their answers are checked, several become one, and only usable tasks are selected."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, cast

from rlcore.abilities import CountsSkipped, MapsRows
from rlcore.console.wording import counted
from rlcore.contracts import ChatFormat, Dataset, RendersImages
from rlcore.errors import DataError, PluginError, UserError
from rlcore.images import ImageProcessor, image_size
from rlcore.models.tokenizer_texts import texts_of
from rlcore.plugin_calls import value_text
from rlcore.plugins.registry import asked
from rlcore.types import Demonstration, Preference, RecordedEpisode, Task, derive_seed, media_hash
from rlcore.types.checking import flaw_in_demonstration, flaw_in_preference, flaw_in_task


def checked_dataset(dataset: Any, what: str) -> Dataset:
    """The dataset with checked methods. It has the same optional abilities (`rlcore.abilities`).

    ``what`` names it and its plugin. Every method raises `PluginError` when the dataset raises an exception other than
    `RlcoreError`, or returns something else than its contract says. ``tasks`` and ``conversations`` are read once.
    """
    methods = {name: make for name, make in _METHODS.items() if callable(getattr(dataset, name, None))}
    made = type("CheckedDataset", (_Checked,), {name: make(name) for name, make in methods.items()})
    return cast(Dataset, made(dataset, what))


class _Checked:
    def __init__(self, dataset: Any, what: str) -> None:
        self.dataset, self.what = dataset, what
        self.read: dict[tuple[str, str], Sequence[Any]] = {}

    def ask(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        return asked(f"{name} of {self.what}", getattr(self.dataset, name), *arguments, **keywords)

    def wrong(self, name: str, wanted: str, found: str) -> PluginError:
        return PluginError(f"{name} of {self.what} must return {wanted}", found=found, fix=f"edit {name}")


def _rows(kind: type, flaw_in: Callable[[Any], str | None]) -> Callable[[str], Any]:
    """A method that returns all rows of a split."""

    def make(name: str) -> Any:
        def rows(self: _Checked, split: str) -> Sequence[Any]:
            if (name, split) not in self.read:
                answer, wanted = self.ask(name, split), f"a list of {kind.__name__} objects"
                if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes)):
                    raise self.wrong(name, wanted, value_text(answer))
                listed = asked(f"{name} of {self.what}", lambda: list(islice(answer, len(answer))))
                for number, row in enumerate(listed):
                    _check(self, name, kind, flaw_in, number, row)
                self.read[name, split] = listed
            return self.read[name, split]

        return rows

    return make


def _stream(kind: type, flaw_in: Callable[[Any], str | None]) -> Callable[[str], Any]:
    """A method that returns an iterable, which may be endless."""

    def make(name: str) -> Any:
        def stream(self: _Checked, *arguments: Any, **keywords: Any) -> Iterator[Any]:
            answer = self.ask(name, *arguments, **keywords)
            if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes, Mapping)):
                raise self.wrong(name, f"an iterable of {kind.__name__} objects", value_text(answer))
            return items(self, answer)

        def items(self: _Checked, answer: Iterable[Any]) -> Iterator[Any]:
            iterator, number, end = asked(f"{name} of {self.what}", iter, answer), 0, object()
            while (row := asked(f"{name} of {self.what}", next, iterator, end)) is not end:
                _check(self, name, kind, flaw_in, number, row)
                yield row
                number += 1

        return stream

    return make


def _check(
    self: _Checked, name: str, kind: type, flaw_in: Callable[[Any], str | None], number: int, row: object
) -> None:
    if not isinstance(row, kind):
        raise self.wrong(name, f"{kind.__name__} objects", f"item {number} is {value_text(row)}")
    if flaw := asked(f"{name} of {self.what}", flaw_in, row):
        raise self.wrong(name, f"valid {kind.__name__} objects", f"item {number} has {flaw}")


def _count(name: str) -> Any:
    def count(self: _Checked, split: str) -> int:
        answer = self.ask(name, split)
        if not isinstance(answer, int) or isinstance(answer, bool):
            raise self.wrong(name, "a number", value_text(answer))
        return answer

    return count


def _no_flaw(row: object) -> None:
    return None


_METHODS: Mapping[str, Callable[[str], Any]] = {
    "tasks": _rows(Task, flaw_in_task),
    "conversations": _rows(Demonstration, flaw_in_demonstration),
    "preferences": _rows(Preference, flaw_in_preference),
    "demonstrations": _stream(Demonstration, flaw_in_demonstration),
    "episodes": _stream(RecordedEpisode, _no_flaw),
    "texts": _stream(str, _no_flaw),
    "skipped": _count,
    "mappings": _stream(str, _no_flaw),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The dataset of one environment."""

    name: str
    """The name of the environment."""
    weight: float
    """Its share of the demonstrations, relative to the others."""
    dataset: Dataset

    def rows(self, method: str, what: str) -> Callable[..., Iterable[Any]]:
        """A method of the dataset. Raises `DataError` if it has none."""
        if rows := getattr(self.dataset, method, None):
            return cast(Callable[..., Iterable[Any]], rows)
        raise DataError(
            f"the environment {self.name!r} has no {what}",
            found=f"its dataset {type(self.dataset).__name__} provides none",
            where="warmup.steps",
            fix="set warmup.steps=0, or use another dataset",
        )


class MixedDataset:
    """All tasks of all parts, in the order of the environments. Ids are unique only within an environment."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self._tasks: dict[str, Sequence[Task]] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, each with the name of its environment."""
        if split not in self._tasks:
            named = ([replace(task, environment=one.name) for task in one.dataset.tasks(split)] for one in self.parts)
            self._tasks[split] = list(chain.from_iterable(named))
        return self._tasks[split]

    def skipped(self, split: str) -> int:
        """The number of skipped rows of all parts that count them."""
        return sum(one.dataset.skipped(split) for one in self.parts if isinstance(one.dataset, CountsSkipped))

    def mappings(self, split: str) -> Sequence[str]:
        """How all parts read rows of other systems."""
        parts = (one.dataset.mappings(split) for one in self.parts if isinstance(one.dataset, MapsRows))
        return list(dict.fromkeys(chain.from_iterable(parts)))

    def texts(self) -> Iterator[str]:
        """The texts of all parts, for a tokenizer."""
        return chain.from_iterable(texts_of(one.dataset) for one in self.parts)

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Demonstrations of all parts that have a weight, interleaved by their weights.

        Raises:
            DataError: a part has no demonstrations.
        """
        return self._interleaved("demonstrations", "demonstrations", count, seed)

    def episodes(self, count: int, *, seed: int) -> Iterator[RecordedEpisode]:
        """Recorded episodes of all parts that have a weight, interleaved by their weights. Raises as above."""
        return self._interleaved("episodes", "recorded episodes", count, seed)

    def _interleaved(self, method: str, what: str, count: int, seed: int) -> Iterator[Any]:
        drawn = [one for one in self.parts if one.weight]
        streams = [iter(one.rows(method, what)(count, seed=derive_seed(seed, one.name))) for one in drawn]
        total, credit = sum(one.weight for one in drawn), [0.0] * len(drawn)
        for _ in range(count):
            credit = [value + one.weight / total for value, one in zip(credit, drawn, strict=True)]
            chosen = max(range(len(drawn)), key=lambda n: credit[n])
            credit[chosen] -= 1
            row = next(streams[chosen], None)
            if row is None:
                return
            yield row


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableTasks:
    """The tasks of a split that can be used, and the number of the others by reason."""

    tasks: Sequence[Task]
    skipped: Mapping[str, int]

    def lines(self, split: str) -> list[str]:
        """A line for the log for each reason."""
        return [f"skipped   {counted(n, 'task')} in data.{split}: {reason}" for reason, n in self.skipped.items()]


def usable_tasks(tasks: Sequence[Task], chat_format: ChatFormat | None, limit: int | None) -> UsableTasks:
    """Remove tasks whose images are unreadable, or whose own messages are longer than the limit.

    Images are counted from their size; their pixels are not decoded. Messages that the environment adds, and its tools,
    are not counted.

    Args:
        tasks: the tasks of a split
        chat_format: renders the messages; None checks only the images
        limit: the maximum length of a prompt in tokens; None checks only the images
    """
    if limit is None and not any(message.images for task in tasks for message in task.messages):
        return UsableTasks(tasks=tasks, skipped={})
    kept: list[Task] = []
    skipped: Counter[str] = Counter()
    for task in tasks:
        try:
            sizes = _sizes(task)
            length = _length(task, chat_format, sizes) if chat_format is not None else 0
        except UserError as error:
            skipped[error.message] += 1
            continue
        if limit is not None and length > limit:
            skipped[f"a prompt of more than {limit} tokens"] += 1
        else:
            kept.append(task)
    return UsableTasks(tasks=kept, skipped=dict(skipped))


def _sizes(task: Task) -> dict[str, tuple[int, int]]:
    """Width and height of each image that the messages of a task refer to."""
    wanted = {name for message in task.messages for name in message.images}
    if not wanted:
        return {}
    images = {media_hash(data): data for data in task.images}
    if missing := wanted - images.keys():
        raise UserError("a message refers to an image that the task does not have", found=f"{min(missing)[:12]}…")
    return {name: image_size(images[name]) for name in sorted(wanted)}


def _length(task: Task, chat_format: ChatFormat, sizes: Mapping[str, tuple[int, int]]) -> int:
    """The number of tokens of a task's first prompt. One small image stands in for each image."""
    if not task.messages:
        return 0
    if not sizes:
        return len(chat_format.prompt(task.messages))
    assert isinstance(chat_format, RendersImages), "checked before"
    processor = chat_format.image_processor
    assert processor is not None, "checked before"
    stand_in = _smallest(processor)
    ids, media = chat_format.prompt_with_images(task.messages, (), dict.fromkeys(sizes, stand_in))
    shown = (processor.tokens(*sizes[span.sha256]) for span in media)
    return len(ids) - sum(span.length for span in media) + sum(rows * columns for rows, columns in shown)


def _smallest(processor: ImageProcessor) -> bytes:
    """An encoded image of one visual token."""
    from PIL import Image

    written = io.BytesIO()
    Image.new("L", (processor.token_side, processor.token_side)).save(written, format="PNG")
    return written.getvalue()


def rows_told(dataset: Dataset, *splits: str) -> list[str]:
    """A line for each form of rows that a dataset recognised, and each split with rows that it skipped."""
    forms = [one for split in splits for one in dataset.mappings(split)] if isinstance(dataset, MapsRows) else []
    counts = {split: dataset.skipped(split) for split in splits} if isinstance(dataset, CountsSkipped) else {}
    read = [f"rows      {one}" for one in dict.fromkeys(forms)]
    return read + [f"skipped   {counted(n, 'unusable row')} in data.{split}" for split, n in counts.items() if n]
