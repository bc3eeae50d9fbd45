"""Write TensorBoard event files to ``tensorboard/`` in the run directory. The constructor imports tensorboard."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.errors import NotInstalledError, UserError
from rlcore.images import image_size
from rlcore.plugins.loading import pip_line
from rlcore.trackers.options import TensorboardOptions
from rlcore.trackers.samples import SampleTable, is_sampled, pictures, sample_table, samples
from rlcore.types import Group

LONGEST = 2_000
"""Maximum number of characters of a cell: TensorBoard shows all of them."""


class TensorboardTracker:
    """Writes scalars, tables of samples and their images with the writer of tensorboard, without torch."""

    def __init__(self, options: TensorboardOptions, directory: Path | None) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
            from tensorboard.compat.proto.tensor_pb2 import TensorProto
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise NotInstalledError(
                "the tracker 'tensorboard' needs tensorboard",
                found=str(error),
                fix=pip_line(["rlcore-core[tensorboard]"]),
            ) from None
        if directory is None:
            raise UserError("the tracker 'tensorboard' needs a run directory")
        self._event, self._summary, self._metadata, self._tensor = Event, Summary, SummaryMetadata, TensorProto
        self._count = options.samples
        self._writer = EventFileWriter(str(directory / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one event with all scalars of the step."""
        self._write(step, [self._summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()])

    def log_samples(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Write a table of some trajectories, and one picture for each trajectory with images."""
        chosen = samples(groups, self._count) if is_sampled(step, purpose) else []
        if chosen:
            name = f"samples/{purpose}"
            shown = [self._picture(f"{name}/{row}", data) for row, data in enumerate(pictures(chosen)) if data]
            self._write(step, [self._text(name, markdown_table(sample_table(step, chosen))), *shown])

    def _text(self, tag: str, markdown: str) -> Any:
        kind = self._metadata(plugin_data=self._metadata.PluginData(plugin_name="text"))
        text = self._tensor(dtype="DT_STRING", string_val=[markdown.encode()])
        return self._summary.Value(tag=tag, metadata=kind, tensor=text)

    def _picture(self, tag: str, data: bytes) -> Any:
        width, height = image_size(data)
        image = self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=data)
        return self._summary.Value(tag=tag, image=image)

    def _write(self, step: int, values: Sequence[Any]) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def close(self) -> None:
        """Flush and close the writer."""
        self._writer.close()


def markdown_table(table: SampleTable) -> str:
    """A table in Markdown, in which no text is read as Markdown or HTML."""
    rows = [map(_cell, table.columns), ["---"] * len(table.columns), *(map(_cell, row) for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        return "" if value is None else f"{value:.6g}"
    # All ASCII punctuation as entities: Markdown has meanings for most of it.
    escaped = re.sub(r"[!-/:-@\[-`{-~]", lambda found: f"&#{ord(found[0])};", value[:LONGEST])
    return escaped.replace("\n", "<br>")
