"""The columns of prepared files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from rlcore_gui.pseudo_labels import TEXTS

FORMAT = "rlcore-gui-steps"
VERSION = 1
_METADATA = b"rlcore"

LABEL = pa.struct([pa.field(name, pa.string(), nullable=False) for name in TEXTS])


def schema_of(extra: pa.StructType) -> pa.Schema:
    """The columns of a data set whose source has these additional values. One row is one step of an episode."""

    def required(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    return pa.schema(
        [
            required("dataset", pa.string()),
            required("row_id", pa.string()),
            required("episode_id", pa.string()),
            required("step_index", pa.int32()),
            required("group", pa.string()),
            required("task", pa.string()),
            pa.field("image", pa.string()),  # relative to the folder; null if the step is no row
            pa.field("width", pa.int32()),
            pa.field("height", pa.int32()),
            pa.field("skipped", pa.string()),  # why the step is no row
            required("action", pa.string()),
            pa.field("value", pa.string()),
            pa.field("position", pa.list_(pa.float64(), 2)),
            required("boxes", pa.list_(pa.float64())),  # y, x, height, width of each box in turn
            pa.field("memory", pa.string()),
            pa.field("label", LABEL),
            required("is_first", pa.bool_()),
            required("is_last", pa.bool_()),
            pa.field("next_row_id", pa.string()),
            required("source", extra),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a prepared file comes from."""

    dataset: str
    images: str
    """The folder that the names of its screenshots are relative to."""
    seed: int
    held_out: bool
    """Whether it contains the held-out episodes."""

    def as_metadata(self) -> Mapping[bytes, bytes]:
        """Metadata of the file."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {_METADATA: json.dumps({"format": FORMAT, "version": VERSION, **values}).encode()}

    @classmethod
    def of(cls, schema: pa.Schema) -> Origin | None:
        """The origin that the metadata of a file states; None if it is no prepared file."""
        try:
            values = json.loads((schema.metadata or {})[_METADATA])
            if (values.pop("format"), values.pop("version")) != (FORMAT, VERSION):
                return None
            return cls(**values)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


__all__ = ["LABEL", "Origin", "schema_of"]
