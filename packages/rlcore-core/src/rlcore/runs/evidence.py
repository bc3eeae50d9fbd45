"""What is known about the rollouts of a step besides their content: times, and values of the trained tokens.

``evidence/train-000007.times.jsonl.gz`` has a row for each part of an episode that was timed. A resumed run may have
other times.

``evidence/train-000007.tokens.safetensors`` has the values of the trained tokens as columns, which
``safetensors.numpy.load_file`` reads. `read_tokens` reads it without other libraries.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.atomic_files import told, whole
from rlcore.errors import DataError
from rlcore.json_files import open_regular, parse_json
from rlcore.runs.index import write_lines
from rlcore.types import Group, NumberArray
from rlcore.types.arrays import FORMATS

TOKENS = "tokens.safetensors"
SEQUENCE = ("step", "group", "sibling", "segment", "count")
"""The columns with a row for each trained sequence: where it was sampled, and its number of trained tokens."""
LARGEST_HEADER = 1_000_000
"""Limit of the header of a file in bytes."""
_NAMES = {"float16": "F16", "float32": "F32", "int32": "I32"}
"""The types of the columns, with their names in the format."""


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


@dataclass(frozen=True, slots=True)
class Tokens:
    """Values of the trained tokens of a step.

    Attributes:
        columns: by name. Those of `SEQUENCE` have a row for each sequence, all others a row for each token: the tokens
            of the sequences in order, in each sequence those that the policy wrote. ``advantage``; ``logprob``, of the
            learner before the update; ``entropy``; ``log_ratio``, the log-probability in the last update of the token
            minus ``logprob``, if a step has several updates; ``reference_logprob`` and ``value``, if the run has a
            reference or a critic. In nats
        note: ``version``, that of the policy before the update, and ``share``, that of the trajectories
    """

    columns: Mapping[str, NumberArray]
    note: Mapping[str, Any]

    def __getitem__(self, name: str) -> list[float]:
        """The numbers of a column."""
        column = self.columns[name]
        return list(struct.unpack(f"<{len(column)}{FORMATS[column.dtype]}", column.data))

    @property
    def names(self) -> list[str]:
        """The columns with a row for each token."""
        return [name for name in self.columns if name not in SEQUENCE]

    def sequences(self) -> Iterator[tuple[dict[str, int], slice]]:
        """Each sequence by the columns of `SEQUENCE`, and the slice of its tokens."""
        end = 0
        for row in zip(*(self[name] for name in SEQUENCE), strict=True):
            place = {name: int(value) for name, value in zip(SEQUENCE, row, strict=True)}
            start, end = end, end + place["count"]
            yield place, slice(start, end)


def read_tokens(path: Path) -> Tokens:
    """The columns of a file of `write_tokens`.

    Raises:
        DataError: there is no file, or it is damaged.
    """
    if not path.is_file():
        fix = "the share of the trajectories is the key trainer.token_evidence; steps without an update have none"
        raise DataError("there are no values of tokens of this step", found=f"no {path}", fix=fix)
    try:
        with open_regular(path) as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LARGEST_HEADER:
                raise ValueError(f"a header of {length:,} bytes")
            header, data = parse_json(file.read(length)), file.read()
        note = parse_json(header.pop("__metadata__")["rlcore"])
        dtypes = {name: dtype for dtype, name in _NAMES.items()}
        columns = {
            name: NumberArray(
                dtype=dtypes[entry["dtype"]], shape=tuple(entry["shape"]), data=data[slice(*entry["data_offsets"])]
            )
            for name, entry in header.items()
        }
        tokens = Tokens(columns, note)
        count = sum(one["count"] for one, _ in tokens.sequences())
        if any(len(columns[name]) != count for name in tokens.names):
            raise ValueError("the columns have different lengths")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise DataError(f"cannot read {path}", found=str(error), fix="restore the file, or remove it") from None
    return tokens


def ratio(log_ratio: float) -> float:
    """The ratio of probabilities of a difference of log-probabilities, infinite where a float has no room."""
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


__all__ = ["SEQUENCE", "TOKENS", "Tokens", "ratio", "read_tokens", "write_times", "write_tokens"]
