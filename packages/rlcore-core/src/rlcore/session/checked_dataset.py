"""A dataset whose answers are checked, so that a wrong one is reported with its plugin instead of failing later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from rlcore.contracts import Dataset
from rlcore.errors import PluginError
from rlcore.plugin_calls import value_text
from rlcore.plugins.registry import asked
from rlcore.types import Demonstration, RecordedEpisode, Task
from rlcore.types.checking import flaw_in_demonstration, flaw_in_task


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
    "demonstrations": _stream(Demonstration, flaw_in_demonstration),
    "episodes": _stream(RecordedEpisode, _no_flaw),
    "texts": _stream(str, _no_flaw),
    "skipped": _count,
}

__all__ = ["checked_dataset"]
