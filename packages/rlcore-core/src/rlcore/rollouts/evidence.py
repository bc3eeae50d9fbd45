"""What is known about the rollouts of a step besides their content: times, and values of the trained tokens.

``evidence/train-000007.times.jsonl.gz`` has a row for each part of an episode that was timed. A resumed run may have
other times.

``evidence/train-000007.tokens.safetensors`` has the values of the trained tokens as columns, which
``safetensors.numpy.load_file`` reads. `read_tokens` reads it without other libraries.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rlcore.atomic_files import told, whole
from rlcore.errors import DataError
from rlcore.json_files import open_regular, parse_json
from rlcore.rollouts.index import write_lines
from rlcore.types import Group, NumberArray
from rlcore.types.arrays import FORMATS

TOKENS = "tokens.safetensors"
SEQUENCE = ("step", "group", "sibling", "segment", "count")
"""The columns with a row for each trained sequence: where it was sampled, and its number of trained tokens."""
LARGEST_HEADER = 1_000_000
"""Limit of the header of a file in bytes."""
MOST_SEQUENCES = 1_000_000
"""Limit of the sequences of a step."""
_NAMES = {"float16": "F16", "float32": "F32", "int32": "I32"}
"""The types of the columns, with their names in the format."""
_DAMAGE = OSError, ValueError, OverflowError, KeyError, TypeError, IndexError, AttributeError, struct.error
"""What reading a file may raise whose header is wrong."""


def write_times(path: Path, groups: Sequence[Group]) -> None:
    """Write the times of trajectories, unless there are none. Raises `UserError` if that fails."""
    rows = [
        {
            "group": place,
            "sibling": one.sibling,
            "kind": time.kind,
            "name": time.name,
            "start": round(time.start, 6),
            "seconds": round(time.seconds, 6),
        }
        for place, group in enumerate(groups)
        for one in group.trajectories
        for time in one.times
    ]
    if rows:
        write_lines(path, rows)


def write_tokens(path: Path, columns: Mapping[str, NumberArray], note: Mapping[str, Any]) -> None:
    """Write columns in the format safetensors, atomically. Equal columns give equal bytes.

    Args:
        path: the file
        columns: arrays of one axis
        note: further facts about the step, which become the only entry of the metadata, ``rlcore``

    Raises:
        UserError: the file cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": {"rlcore": json.dumps(note)}}
    end = 0
    for name, column in columns.items():
        start, end = end, end + len(column.data)
        header[name] = {"dtype": _NAMES[column.dtype], "shape": column.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data must be aligned
    with told(path):
        path.parent.mkdir(exist_ok=True)
    with whole(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for column in columns.values():
            file.write(column.data)


class Tokens:
    """Values of the trained tokens of a step. The numbers of a column are read when they are asked for.

    Attributes:
        names: the columns with a row for each token: the tokens of the sequences in order, in each sequence those that
            the policy wrote. ``advantage``; ``logprob``, of the learner before the update; ``entropy``; ``log_ratio``,
            the log-probability in the last update of the token minus ``logprob``, if a step has several updates;
            ``reference_logprob`` and ``value``, if the run has a reference or a critic. In nats
        note: ``version``, that of the policy before the update, and ``share``, that of the trajectories
    """

    def __init__(self, path: Path) -> None:
        """Read the header and the sequences. Raises `DataError` if the file is damaged."""
        self._path = path
        with self._opened() as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LARGEST_HEADER:
                raise ValueError(f"a header of {length:,} bytes")
            entries = parse_json(file.read(length))
            self.note: Mapping[str, Any] = parse_json(entries.pop("__metadata__")["rlcore"])
            codes = {name: FORMATS[dtype] for dtype, name in _NAMES.items()}
            self._columns = {
                name: (codes[entry["dtype"]], 8 + length + entry["data_offsets"][0], entry["shape"][0])
                for name, entry in entries.items()
            }
            size = os.fstat(file.fileno()).st_size
            for code, start, count in self._columns.values():
                if start < 0 or count < 0 or start + count * struct.calcsize(code) > size:
                    raise ValueError("a column that ends after the file")
            if any(self._columns[name][2] > MOST_SEQUENCES for name in SEQUENCE):
                raise ValueError(f"more than {MOST_SEQUENCES:,} sequences")
            self.names = [name for name in self._columns if name not in SEQUENCE]
            columns = [map(int, _numbers(file, self._columns[name], slice(None))) for name in SEQUENCE]
            self._sequences = list(zip(*columns, strict=True))
            total = sum(count for *_, count in self._sequences)
            if any(self._columns[name][2] != total for name in self.names):
                raise ValueError("the columns have different lengths")

    def __getitem__(self, name: str) -> list[float]:
        """The numbers of a column. Raises `DataError` if the file is damaged by now."""
        return self.part(name, slice(None))

    def part(self, name: str, rows: slice) -> list[float]:
        """Some numbers of a column. Raises as the whole column."""
        column = self._columns[name]
        with self._opened() as file:
            return _numbers(file, column, rows)

    def sequences(self) -> Iterator[tuple[dict[str, int], slice]]:
        """Each trained sequence by the columns of `SEQUENCE`, and the slice of its tokens."""
        end = 0
        for row in self._sequences:
            place = dict(zip(SEQUENCE, row, strict=True))
            start, end = end, end + place["count"]
            yield place, slice(start, end)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with open_regular(self._path) as file:
                yield file
        except _DAMAGE as error:
            fix = "restore the file, or remove it"
            raise DataError(f"cannot read {self._path}", found=str(error), fix=fix) from None


def _numbers(file: BinaryIO, column: tuple[str, int, int], rows: slice) -> list[float]:
    code, offset, count = column
    start, end, _ = rows.indices(count)
    size = struct.calcsize(code)
    file.seek(offset + start * size)
    return list(struct.unpack(f"<{end - start}{code}", file.read((end - start) * size)))


def read_tokens(path: Path) -> Tokens:
    """The columns of a file of `write_tokens`.

    Raises:
        DataError: there is no file, or it is damaged.
    """
    if not path.is_file():
        fix = "the share of the trajectories is the key trainer.token_evidence; steps without an update have none"
        raise DataError("no values of tokens of this step are stored", found=f"no {path}", fix=fix)
    return Tokens(path)


def ratio(log_ratio: float) -> float:
    """The ratio of probabilities of a difference of log-probabilities, infinite where a float has no room."""
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


__all__ = ["SEQUENCE", "TOKENS", "Tokens", "ratio", "read_tokens", "write_times", "write_tokens"]
