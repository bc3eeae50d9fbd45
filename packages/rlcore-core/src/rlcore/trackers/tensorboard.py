"""Write TensorBoard event files to ``tensorboard/`` in the run directory. The constructor imports tensorboard."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.errors import NotInstalledError, UserError
from rlcore.images import contact_sheet, image_size
from rlcore.plugins.loading import pip_line
from rlcore.trackers.service import samples
from rlcore.types import Group

SAMPLES = 8
"""Number of trajectories of each evaluation whose images are written."""


class TensorboardTracker:
    """Writes scalars, and images of evaluations, with the writer of tensorboard, without torch."""

    def __init__(self, options: None, directory: Path | None) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise NotInstalledError(
                "the tracker 'tensorboard' needs tensorboard",
                found=str(error),
                fix=pip_line(["rlcore-core[tensorboard]"]),
            ) from None
        if directory is None:
            raise UserError("the tracker 'tensorboard' needs a run directory")
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(directory / "tensorboard"))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one event with all scalars of the step."""
        self._write(step, [self._summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()])

    def log_samples(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Write the images of some trajectories of an evaluation, one picture for each trajectory."""
        shown = [one for one in samples(groups, SAMPLES) if one.images] if purpose == "evaluation" else []
        pictures = [picture for one in shown if (picture := contact_sheet(one.images.values())) is not None]
        if pictures:
            self._write(step, [self._picture(f"samples/{number}", data) for number, data in enumerate(pictures)])

    def _picture(self, tag: str, data: bytes) -> Any:
        width, height = image_size(data)
        image = self._summary.Image(width=width, height=height, colorspace=3, encoded_image_string=data)
        return self._summary.Value(tag=tag, image=image)

    def _write(self, step: int, values: Sequence[Any]) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=values)))

    def close(self) -> None:
        """Flush and close the writer."""
        self._writer.close()
