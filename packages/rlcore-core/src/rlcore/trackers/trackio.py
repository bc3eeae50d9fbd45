"""Log to trackio, a local dashboard. The constructor imports trackio."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line
from rlcore.trackers.options import TrackioOptions
from rlcore.trackers.service import ServiceTracker


class TrackioTracker(ServiceTracker):
    """One trackio run with the configuration, the metrics, and a table of samples of each evaluation.

    trackio resumes a run by its name, so the name ends with the id of the run directory. A resumed run replaces the run
    in the local storage of trackio. The messages of trackio go to stderr, because stdout may be JSON.
    """

    def __init__(self, options: TrackioOptions, directory: Path | None) -> None:
        try:
            import trackio
        except ImportError as error:
            raise NotInstalledError(
                "the tracker 'trackio' needs trackio", found=str(error), fix=pip_line(["rlcore-core[trackio]"])
            ) from None
        super().__init__("trackio", directory, options.samples)
        self._trackio, name = trackio, f"{self.directory.name}-{self.id}"
        with redirect_stdout(sys.stderr):
            if self.can_replay:
                for run in list(trackio.Api().runs(options.project)):
                    if run.name == name:
                        run.delete()
            self._run = trackio.init(options.project, name=name, resume="allow", config=self.config)
        if self.can_replay:
            self.replay()

    def send(self, step: int, metrics: Mapping[str, float], rows: Sequence[Sequence[Any]]) -> None:
        """Log the metrics and a table ``samples``."""
        table = {}
        if rows:
            table["samples"] = self._trackio.Table(columns=self.columns(rows), data=[list(row) for row in rows])
        with redirect_stdout(sys.stderr):
            self._run.log({**metrics, **table}, step=step)

    def image(self, data: bytes | None) -> Any:
        """The images of a trajectory, next to each other."""
        from PIL import Image

        return self._trackio.Image(Image.open(io.BytesIO(data))) if data is not None else None

    def close(self) -> None:
        """Flush and finish the run."""
        with redirect_stdout(sys.stderr):
            self._trackio.finish()  # the method of the run would print again at the end of the process
