"""The way of recorded episodes from source files to prepared files.

Episodes are read, completed and written a few thousand steps at a time, so memory does not grow with the data. Every
step becomes one row of the file. A step that cannot be trained on has its reason in the column ``skipped`` and no
image; it stays part of the history. Histories are derived from the rows of an episode when they are needed.

Axes: ``N`` the steps of some episodes, in order.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rlcore.console.terminal import overwrite
from rlcore.console.wording import counted
from rlcore.errors import DataError

from rlcore_gui.prepare.config import PrepareTable
from rlcore_gui.prepare.files import LABEL, Origin, StepsWriter, schema_of, writing
from rlcore_gui.prepare.holdout import hold_out
from rlcore_gui.prepare.pseudo_labels import SUMMARY, TEXTS, PseudoLabels
from rlcore_gui.prepare.report import Report
from rlcore_gui.prepare.screenshots import Flaw, ImageFolder, Prober, Size
from rlcore_gui.prepare.sources import Source, SourceEpisode, episodes, points_column, step_numbers, texts_column

CHUNK = 2048
"""Steps that are completed and written at a time, as one row group. Episodes are never divided."""
FEW_BYTES = 1 << 23
"""Source files up to this size are prepared without a second process."""


def prepare(source: Source, config: PrepareTable) -> Mapping[str, object]:
    """Write the prepared files of a data set, and return a summary.

    Nothing is written if an error occurs, and readers never see a partial file.

    Raises:
        DataError: a file cannot be read or written, no step can be used, no label belongs to a step, or, if strict, a
            step, episode or label cannot be used.
    """
    out, subset = _outputs(config)
    preparation = _Preparation(source, config)
    written: dict[str, object] = {}
    with _paused_collector(), ExitStack() as stack:
        writer = stack.enter_context(writing(out, preparation.schema(held_out=False)))
        if subset is None:
            for batch in preparation.batches():
                writer.write(batch)
        else:
            held_out = stack.enter_context(writing(subset, preparation.schema(held_out=True)))
            _divide(preparation, writer, held_out, out.parent)
            written["held out"] = f"{counted(held_out.rows, 'row')} in {subset}"
        preparation.report.check(strict=config.strict)
    return {**preparation.report.summary(), **written, "written": f"{counted(writer.rows, 'row')} to {out}"}


def _divide(preparation: _Preparation, writer: StepsWriter, held_out: StepsWriter, folder: Path) -> None:
    """Write all rows to a temporary file of a folder, and from there to the parts, since all episodes must be known."""
    config = preparation.config
    with tempfile.TemporaryFile(dir=folder) as file:
        with pa.ipc.new_file(file, preparation.rows) as everything:
            for batch in preparation.batches():
                everything.write_batch(batch)
        found = preparation.episodes
        held = hold_out(((id, stratum, rows) for id, _, stratum, rows in found), config.subset_size, seed=config.seed)
        held_ids = pa.array([unique for id, unique, _, _ in found if id in held], pa.string())
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            is_held = pc.is_in(batch["episode_id"], held_ids)
            held_out.write(batch.filter(is_held))
            writer.write(batch.filter(pc.invert(is_held)))


class _Preparation:
    """Completes the steps of source files to rows."""

    def __init__(self, source: Source, config: PrepareTable) -> None:
        self.source, self.config = source, config
        self.folder = ImageFolder(Path(config.images).expanduser())
        self.labels = PseudoLabels(Path(config.labels).expanduser()) if config.labels else None
        self.report = Report(labels=self.labels, memory=config.memory)
        self.rows = schema_of(source.extra)
        self.episodes: list[tuple[str, str, str, int]] = []
        """Of each episode for a subset, the id of the source, the id of its rows, the stratum and number of rows."""
        self._paths = [Path(name).expanduser() for name in config.source]
        self._bytes, self._read = sum(map(_size, self._paths)), 0
        self._seen: set[int] = set()

    def schema(self, *, held_out: bool) -> pa.Schema:
        """The schema of a file."""
        origin = Origin(
            dataset=self.source.dataset, images=str(self.folder.path), seed=self.config.seed, held_out=held_out
        )
        return self.rows.with_metadata(dict(origin.as_metadata()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, a row group at a time. While the screenshots of a group are probed, the next one is read."""
        before: list[SourceEpisode] = []
        with Prober(self.folder, process=self._bytes > FEW_BYTES) as probe:
            for chunk in self._chunks():
                sizes_N = probe.result() if before else []
                probe.begin([name for episode in chunk for name in episode.images])
                if before:
                    yield self._batch(before, sizes_N)
                before = chunk
            if before:
                yield self._batch(before, probe.result())

    def _chunks(self) -> Iterator[list[SourceEpisode]]:
        """Readable episodes, a few thousand steps at a time."""
        waiting: list[SourceEpisode] = []
        steps = 0
        try:
            for episode in episodes(self.source, self._paths, unreadable=self.report.unreadable, read=self._show):
                waiting.append(episode)
                steps += len(episode.steps)
                if steps >= CHUNK:
                    yield waiting
                    waiting, steps = [], 0
            if waiting:
                yield waiting
        finally:
            if sys.stderr.isatty():
                overwrite()

    def _show(self, read: int) -> None:
        self._read += read
        if sys.stderr.isatty():
            overwrite(f"{self.report.rows:,} rows", fraction=min(1.0, self._read / max(self._bytes, 1)))

    def _batch(self, chunk: Sequence[SourceEpisode], sizes_N: Sequence[Size | Flaw]) -> pa.RecordBatch:
        """The rows of some episodes."""
        columns = self.source.columns([step for episode in chunk for step in episode.steps], sizes_N)
        self.report.add_notes(columns.notes)
        flaw_N = [size if isinstance(size, str) else flaw for size, flaw in zip(sizes_N, columns.flaw_N, strict=True)]
        rows_N: list[tuple[Any, ...]] = []
        for episode in chunk:
            steps = slice(len(rows_N), len(rows_N) + len(episode.steps))
            rows_N += self._place(episode, columns.index_N[steps], flaw_N[steps])
        row_id_N, id_N, group_N, index_N, is_first_N, is_last_N, next_N, label_N, memory_N = zip(*rows_N, strict=True)
        names_N = [name for episode in chunk for name in episode.images]
        size_N = [None if isinstance(size, str) else size for size in sizes_N]
        labels = [texts_column([label[name] if label else "" for label in label_N]) for name in TEXTS]
        arrays: dict[str, pa.Array] = {
            "dataset": pa.repeat(self.source.dataset, len(flaw_N)),
            "row_id": texts_column(row_id_N),
            "episode_id": texts_column(id_N),
            "step_index": pa.array(index_N, pa.int32()),
            "group": texts_column(group_N),
            "task": texts_column(columns.task_N),
            "image": texts_column([None if flaw else name for name, flaw in zip(names_N, flaw_N, strict=True)]),
            "width": pa.array([size and size[0] for size in size_N], pa.int32()),
            "height": pa.array([size and size[1] for size in size_N], pa.int32()),
            "skipped": texts_column(flaw_N),
            "action": texts_column(columns.action_N),
            "value": texts_column(columns.value_N),
            "position": points_column(columns.position_N2),
            "boxes": pa.ListArray.from_arrays(
                pa.array(4 * np.concatenate(([0], np.cumsum(columns.boxes_N))), pa.int32()),
                pa.array(columns.boxes_B4.ravel()),
            ),
            "memory": texts_column(memory_N),
            "label": pa.StructArray.from_arrays(
                labels, fields=list(LABEL), mask=pa.array([label is None for label in label_N])
            ),
            "is_first": pa.array(is_first_N, pa.bool_()),
            "is_last": pa.array(is_last_N, pa.bool_()),
            "next_row_id": texts_column(next_N),
            "source": columns.source,
        }
        return pa.RecordBatch.from_arrays([arrays[field.name] for field in self.rows], schema=self.rows)

    def _place(
        self, episode: SourceEpisode, stated: Sequence[int], flaws: Sequence[str | None]
    ) -> list[tuple[Any, ...]]:
        """Where the steps of an episode are in it, and their labels, as columns of `_batch`. Reports the steps."""
        count, unique, report = len(stated), self._unique(episode.id), self.report
        indices = step_numbers(stated)
        if indices is not stated:
            report.note("episodes whose step numbers do not increase, and were numbered again", episode.id)
        row_ids = [f"{self.source.dataset}/{unique}/{index}" for index in indices]
        kept = [number for number, flaw in enumerate(flaws) if flaw is None]
        report.episode(episode.group, steps=count, rows=len(kept))
        for row_id, flaw in zip(row_ids, flaws, strict=True):
            if flaw is not None:
                report.skip(flaw, row_id)
        if self.config.subset is not None:
            self.episodes.append((episode.id, unique, episode.stratum, len(kept)))
        label_N, memory_N = self._join(episode.id, indices, kept)
        is_first_N = ([number] == kept[:1] for number in range(count))
        is_last_N = ([number] == kept[-1:] for number in range(count))
        following = {before: row_ids[after] for before, after in pairwise(kept)}
        next_N = map(following.get, range(count))
        whole = repeat(unique), repeat(episode.group)
        return list(zip(row_ids, *whole, indices, is_first_N, is_last_N, next_N, label_N, memory_N))  # noqa: B905

    def _join(
        self, episode_id: str, indices: Sequence[int], kept: Sequence[int]
    ) -> tuple[list[Mapping[str, str] | None], list[str | None]]:
        """The label of each step of an episode, and as its memory the summary of the step before it."""
        label_N: list[Mapping[str, str] | None] = [None] * len(indices)
        memory_N: list[str | None] = [None] * len(indices)
        if self.labels is not None:
            label_N = [self.labels.find(episode_id, index) for index in indices]
            if self.config.memory:
                memory_N[1:] = [label[SUMMARY] if label else None for label in label_N[:-1]]
            for number in kept:
                self.report.label(label_N[number] is not None)
                if number and self.config.memory:
                    self.report.remember(memory_N[number] is not None)
        return label_N, memory_N

    def _unique(self, episode_id: str) -> str:
        """The id, with a number if an earlier episode has the same."""
        found, number = episode_id, 1
        while (digest := hash(found)) in self._seen:
            number += 1
            found = f"{episode_id}~{number}"
        self._seen.add(digest)
        if number > 1:
            self.report.note("episode ids that occur again and got a number", episode_id)
        return found


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Parsed JSON has no cycles, and looking for some takes a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _outputs(config: PrepareTable) -> tuple[Path, Path | None]:
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


__all__ = ["prepare"]
