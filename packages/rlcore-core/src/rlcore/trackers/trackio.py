"""Log to trackio, a local dashboard. The constructor imports trackio."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line
from rlcore.trackers.options import TrackioOptions
from rlcore.trackers.samples import SampleTable
from rlcore.trackers.service import ServiceTracker

if TYPE_CHECKING:
    from rlcore.diagnosis.diagnosing import Diagnosis


class TrackioTracker(ServiceTracker):
    """One trackio run with the configuration, the metrics, tables of samples, and alerts.

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

    def send(self, step: int, metrics: Mapping[str, float], tables: Mapping[str, SampleTable]) -> None:
        """Log the metrics and the tables."""
        made = {name: self._trackio.Table(columns=table.columns, data=table.rows) for name, table in tables.items()}
        with redirect_stdout(sys.stderr):
            self._run.log({**metrics, **made}, step=step)

    def image(self, data: bytes) -> Any:
        """The images of a trajectory, next to each other."""
        from PIL import Image

        return self._trackio.Image(Image.open(io.BytesIO(data)))

    def alert(self, found: Diagnosis, repeated: bool) -> None:
        """Store an alert. The storage of a resumed run was replaced, so alerts of earlier steps are stored again."""
        level = self._trackio.AlertLevel.ERROR if found.status == "fail" else self._trackio.AlertLevel.WARN
        with redirect_stdout(io.StringIO()):  # trackio prints alerts, which the run has printed
            self._run.alert(found.rule, f"{found.text}\n{found.change}", level, found.step)

    def close(self) -> None:
        """Flush and finish the run."""
        with redirect_stdout(sys.stderr):
            self._trackio.finish()  # the method of the run would print again at the end of the process
