"""Log to trackio, a local dashboard. The constructor imports trackio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import NotInstalledError


class TrackioTracker:
    """One trackio run, named after the run directory."""

    def __init__(self, options: Mapping[str, Any], directory: Path | None) -> None:
        try:
            import trackio
        except ImportError as error:
            raise NotInstalledError(
                "the tracker 'trackio' needs trackio", found=str(error), fix="pip install 'rlcore-core[trackio]'"
            ) from None
        name = directory.name if directory is not None else None
        self._run = trackio.init(name=name, resume="allow", **options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Flush and finish the run."""
        self._run.finish()
