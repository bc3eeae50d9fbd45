"""``rlcore data prepare`` for recorded episodes on screens: source files to prepared parquet files.

Episodes are read, completed and written a few thousand steps at a time, so memory does not grow with the data. Every
step becomes one row of the file. A step that cannot be trained on has its reason in the column ``skipped`` and no
image; it stays part of the history. Histories are derived from the rows of an episode when they are needed.

Axes: ``N`` the steps of some episodes, in order.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from rlcore.console.terminal import overwrite
from rlcore.console.wording import counted
from rlcore.errors import DataError

from rlcore_gui import json_stream
from rlcore_gui.holdout import HoldOut
from rlcore_gui.prepare_config import PrepareConfig
from rlcore_gui.probing import prober
from rlcore_gui.pseudo_labels import SUMMARY, TEXTS, PseudoLabels
from rlcore_gui.report import Report
from rlcore_gui.schema import LABEL, Origin, schema_of
from rlcore_gui.screenshots import Flaw, ImageFolder, Size
from rlcore_gui.sources import Columns, Source, SourceEpisode, UnreadableEpisode, points_column, texts_column
from rlcore_gui.steps_file import StepsFile

CHUNK = 2048
"""Steps that are completed and written at a time, as one row group. Episodes are never divided."""
FEW_BYTES = 1 << 23
"""Source files up to this size are prepared without a second process."""


def prepare(source: Source, config: PrepareConfig) -> Mapping[str, object]:
    """Write the prepared files of a data set, and return a summary.

    Nothing is written if an error occurs, and readers never see a partial file.

    Raises:
        DataError: a file cannot be read or written, no step can be used, no label belongs to a step, or, if strict, a
            step, episode or label cannot be used.
    """
    out, subset = _outputs(config)
    preparation = _Preparation(source, config)
    with ExitStack() as stack:
        stack.enter_context(_paused_collector())
        writer = stack.enter_context(StepsFile(out, preparation.schema(held_out=False)))
        held_out = stack.enter_context(StepsFile(subset, preparation.schema(held_out=True))) if subset else None
        for batches in preparation.batches():
            writer.write(*batches)
        if held_out is not None:
            held, passed = preparation.hold_out.divide()
            writer.write(*passed)
            held_out.write(*held)
        preparation.report.check(strict=config.strict)
    written = {"held out": f"{counted(held_out.rows, 'row')} in {subset}"} if held_out is not None else {}
    return {**preparation.report.summary(), **written, "written": f"{counted(writer.rows, 'row')} to {out}"}


class _Preparation:
    """The way of the data from source files to batches of complete rows."""

    def __init__(self, source: Source, config: PrepareConfig) -> None:
        self.source, self.config = source, config
        self.folder = ImageFolder(Path(config.images).expanduser())
        self.labels = PseudoLabels(Path(config.labels).expanduser()) if config.labels else None
        self.report = Report(labels=self.labels, memory=config.memory)
        self.hold_out = HoldOut(config.subset_size, seed=config.seed)
        self.rows = schema_of(source.extra)
        self.seen: set[int] = set()

    def schema(self, *, held_out: bool) -> pa.Schema:
        origin = Origin(
            dataset=self.source.dataset, images=str(self.folder.path), seed=self.config.seed, held_out=held_out
        )
        return self.rows.with_metadata(dict(origin.as_metadata()))

    def batches(self) -> Iterator[list[pa.RecordBatch]]:
        """All rows that are not held out, except for those that still wait, as the contents of row groups."""
        for episodes, sizes_N in self.probed():
            batch, rows_E = self.complete(episodes, sizes_N)
            if self.config.subset is None:
                yield [batch]
                continue
            passes_N = np.ones(len(batch), dtype=bool)
            start = 0
            for episode, rows in zip(episodes, rows_E, strict=True):
                steps = len(episode.steps)
                copy = partial(_copied, batch, start, steps)
                passes_N[start : start + steps] = not self.hold_out.offer(episode.id, episode.stratum, rows, copy)
                start += steps
            kept = batch if passes_N.all() else batch.filter(pa.array(passes_N))
            yield [kept, *self.hold_out.passed()]

    def probed(self) -> Iterator[tuple[list[SourceEpisode], list[Size | Flaw]]]:
        """Episodes with the sizes of their screenshots. While one chunk is probed, the next one is read."""
        before: list[SourceEpisode] = []
        with prober(self.folder, process=self.source_bytes() > FEW_BYTES) as probe:
            for episodes in self.chunks():
                done = (before, probe.result()) if before else None
                probe.begin([name for episode in episodes for name in episode.images])
                before = episodes
                if done is not None:
                    yield done
            if before:
                yield before, probe.result()

    def chunks(self) -> Iterator[list[SourceEpisode]]:
        """Readable episodes, a few thousand steps at a time."""
        waiting: list[SourceEpisode] = []
        steps = 0
        for name, key, item in self.items():
            try:
                episode = self.source.episode(key, item, name=name)
            except UnreadableEpisode as error:
                self.report.unreadable(str(error), f"{name}, episode {self.report.items}")
                continue
            waiting.append(episode)
            steps += len(episode.steps)
            if steps >= CHUNK:
                yield waiting
                waiting, steps = [], 0
        if waiting:
            yield waiting

    def items(self) -> Iterator[tuple[str, str | None, object]]:
        paths = [Path(name).expanduser() for name in self.config.source]
        total = self.source_bytes()
        before = 0
        try:
            for path in paths:
                for key, item in json_stream.items(path, read=partial(self.show, before, total)):
                    self.report.items += 1
                    yield path.stem, key, item
                before += path.stat().st_size
        finally:
            if sys.stderr.isatty():
                overwrite()

    def source_bytes(self) -> int:
        paths = [Path(name).expanduser() for name in self.config.source]
        return sum(map(_size, paths))

    def show(self, before: int, total: int, done: int) -> None:
        if sys.stderr.isatty():
            overwrite(f"{self.report.rows:,} rows", fraction=min(1.0, (before + done) / max(total, 1)))

    def complete(
        self, episodes: Sequence[SourceEpisode], sizes_N: Sequence[Size | Flaw]
    ) -> tuple[pa.RecordBatch, list[int]]:
        """Return the rows of some episodes, and the number of steps of each that can be trained on."""
        steps_N = [step for episode in episodes for step in episode.steps]
        names_N = [name for episode in episodes for name in episode.images]
        columns = self.source.columns(steps_N, sizes_N)
        flaw_N: list[str | None] = [
            size if isinstance(size, str) else flaw for size, flaw in zip(sizes_N, columns.flaw_N, strict=True)
        ]
        place = _Places(self.source.dataset, self.report)
        for episode in episodes:
            place.add(episode, self.unique(episode.id), columns.index_N, flaw_N)
        self.report.add_notes(columns.notes)
        return self.batch(columns, names_N, sizes_N, flaw_N, place), place.rows_E

    def unique(self, episode_id: str) -> str:
        """The id, with a number if an earlier episode has the same."""
        found, number = episode_id, 1
        while (digest := hash(found)) in self.seen:
            number += 1
            found = f"{episode_id}~{number}"
        self.seen.add(digest)
        if number > 1:
            self.report.note("episode ids that occur again and got a number", episode_id)
        return found

    def batch(
        self,
        columns: Columns,
        names_N: Sequence[str | None],
        sizes_N: Sequence[Size | Flaw],
        flaw_N: Sequence[str | None],
        place: _Places,
    ) -> pa.RecordBatch:
        usable_N = [flaw is None for flaw in flaw_N]
        known_N = [None if isinstance(size, str) else size for size in sizes_N]
        label_N, memory_N = self.join(usable_N, place)
        count = len(flaw_N)
        arrays: dict[str, pa.Array] = {
            "dataset": pa.repeat(self.source.dataset, count),
            "row_id": texts_column(place.row_id_N),
            "episode_id": texts_column(place.episode_id_N),
            "step_index": pa.array(place.index_N, pa.int32()),
            "group": texts_column(place.group_N),
            "task": texts_column(columns.task_N),
            "image": texts_column([name if usable else None for name, usable in zip(names_N, usable_N, strict=True)]),
            "width": pa.array([size and size[0] for size in known_N], pa.int32()),
            "height": pa.array([size and size[1] for size in known_N], pa.int32()),
            "skipped": texts_column(flaw_N),
            "action": texts_column(columns.action_N),
            "value": texts_column(columns.value_N),
            "position": points_column(columns.position_N2),
            "boxes": pa.ListArray.from_arrays(
                pa.array(4 * np.concatenate(([0], np.cumsum(columns.boxes_N))), pa.int32()),
                pa.array(columns.boxes_B4.ravel()),
            ),
            "memory": texts_column(memory_N),
            "label": _labels_column(label_N),
            "is_first": pa.array(place.is_first_N, pa.bool_()),
            "is_last": pa.array(place.is_last_N, pa.bool_()),
            "next_row_id": texts_column(place.next_row_id_N),
            "source": columns.source,
        }
        return pa.RecordBatch.from_arrays([arrays[field.name] for field in self.rows], schema=self.rows)

    def join(self, usable_N: Sequence[bool], place: _Places) -> tuple[list[Mapping[str, str] | None], list[str | None]]:
        """The label of each step, and the summary of the step before it."""
        nothing: list[None] = [None] * len(usable_N)
        if self.labels is None:
            return list(nothing), list(nothing)
        label_N = self.labels.find(list(zip(place.source_id_N, place.index_N, strict=True)))
        memory_N: list[str | None] = list(nothing)
        for number, (label, usable, begins) in enumerate(zip(label_N, usable_N, place.begins_N, strict=True)):
            if usable:
                self.report.label(label is not None)
            if begins or not self.config.memory:
                continue
            before = label_N[number - 1]
            memory_N[number] = before[SUMMARY] if before else None
            if usable:
                self.report.remember(before is not None)
        return label_N, memory_N


class _Places:
    """Where each step is in its episode. ``E`` are the episodes."""

    def __init__(self, dataset: str, report: Report) -> None:
        self.dataset, self.report = dataset, report
        self.rows_E: list[int] = []
        self.episode_id_N: list[str] = []
        self.source_id_N: list[str] = []
        self.group_N: list[str] = []
        self.index_N: list[int] = []
        self.row_id_N: list[str] = []
        self.next_row_id_N: list[str | None] = []
        self.begins_N: list[bool] = []
        self.is_first_N: list[bool] = []
        self.is_last_N: list[bool] = []

    def add(self, episode: SourceEpisode, unique: str, index_N: Sequence[int], flaw_N: Sequence[str | None]) -> None:
        start, count = len(self.row_id_N), len(episode.steps)
        indices = index_N[start : start + count]
        if list(indices) != list(range(count)) and not _increases(indices):
            self.report.note("episodes whose step numbers do not increase, and were numbered again", episode.id)
            indices = range(count)
        before = f"{self.dataset}/{unique}/"
        row_ids = [f"{before}{index}" for index in indices]
        flaws = flaw_N[start : start + count]
        rows = flaws.count(None)
        self.rows_E.append(rows)
        self.episode_id_N += [unique] * count
        self.source_id_N += [episode.id] * count
        self.group_N += [episode.group] * count
        self.index_N += indices
        self.row_id_N += row_ids
        later = [False] * (count - 1)
        self.begins_N += [True, *later]
        if rows == count:
            self.is_first_N += [True, *later]
            self.is_last_N += [*later, True]
            self.next_row_id_N += [*row_ids[1:], None]
        else:
            self._skipped(row_ids, [number for number, flaw in enumerate(flaws) if flaw is None])
        self.report.episode(episode.group, steps=count, rows=rows)
        if rows < count:
            for flaw, row_id in zip(flaws, row_ids, strict=True):
                if flaw is not None:
                    self.report.skip(flaw, row_id)

    def _skipped(self, row_ids: Sequence[str], kept: Sequence[int]) -> None:
        """Mark the rows of an episode that has other steps, too. ``kept`` are the numbers of its rows."""
        first, last = [False] * len(row_ids), [False] * len(row_ids)
        following: list[str | None] = [None] * len(row_ids)
        if kept:
            first[kept[0]] = last[kept[-1]] = True
            for number, after in pairwise(kept):
                following[number] = row_ids[after]
        self.is_first_N += first
        self.is_last_N += last
        self.next_row_id_N += following


def _increases(indices: Sequence[int]) -> bool:
    """Whether these are step numbers in order."""
    return indices[0] >= 0 and all(before < index for before, index in pairwise(indices))


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Parsed JSON has no cycles, and looking for some takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _outputs(config: PrepareConfig) -> tuple[Path, Path | None]:
    out = Path(config.out).expanduser()
    subset = Path(config.subset).expanduser() if config.subset else None
    for name, path in (("out", out), ("subset", subset)):
        if path is None:
            continue
        if path.suffix.lower() != ".parquet":
            fix = "use the suffix .parquet"
            raise DataError("prepared data is written as parquet", found=path.name, where=name, fix=fix)
        if _exists(path) and not config.overwrite:
            fix = f"choose another {name}, or add overwrite=true"
            raise DataError("the output file already exists", where=str(path), fix=fix)
    if subset is not None and subset.resolve() == out.resolve():
        raise DataError("the data and its subset need different files", found=str(out), fix="change subset")
    return out, subset


def _exists(path: Path) -> bool:
    try:
        return path.lstat() is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # such as a name that is too long
        found = getattr(error, "strerror", None) or str(error)
        raise DataError("the output cannot be written", found=found, where=str(path)[:80], fix="rename it") from None


def _size(path: Path) -> int:
    """The bytes of a file; 0 for one that cannot be read, which is reported when it is opened."""
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


def _labels_column(label_N: Sequence[Mapping[str, str] | None]) -> pa.StructArray:
    """Pseudo-labels as a column."""
    parts = [texts_column([label[name] if label else "" for label in label_N]) for name in TEXTS]
    return pa.StructArray.from_arrays(parts, fields=list(LABEL), mask=pa.array([label is None for label in label_N]))


def _copied(batch: pa.RecordBatch, start: int, count: int) -> pa.RecordBatch:
    return batch.take(pa.array(range(start, start + count), pa.int32()))


__all__ = ["prepare"]
