"""Write TensorBoard event files to ``tensorboard/`` in the run directory. The constructor imports tensorboard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlcore.errors import NotInstalledError, UserError
from rlcore.plugins.loading import pip_line


class TensorboardTracker:
    """Writes scalars with the writer of tensorboard, without torch."""

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
        import time

        values = [self._summary.Value(tag=name, simple_value=float(value)) for name, value in metrics.items()]
        event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        """Flush and close the writer."""
        self._writer.close()
