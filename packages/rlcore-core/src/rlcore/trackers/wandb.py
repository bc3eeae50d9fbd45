"""Log to Weights & Biases. The constructor imports wandb."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import NotInstalledError


class WandbTracker:
    """One wandb run, named after the run directory."""

    def __init__(self, options: Mapping[str, Any], directory: Path | None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise NotInstalledError(
                "the tracker 'wandb' needs wandb", found=str(error), fix="pip install 'rlcore-core[wandb]'"
            ) from None
        name = directory.name if directory is not None else None
        self._run = wandb.init(name=name, id=name, resume="allow", dir=directory, **options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Flush and finish the run."""
        self._run.finish()
