"""Write metrics as JSON lines to ``metrics.jsonl`` in the run directory."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path

from rlcore.atomic_files import told


class JsonlTracker:
    """Writes one flat object per call without buffering. Non-finite numbers become null."""

    def __init__(self, options: None, directory: Path | None) -> None:
        self._path = directory / "metrics.jsonl" if directory is not None else None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the metrics of a step, with the time in seconds since 1970.

        Raises:
            UserError: the file cannot be written.
        """
        if self._path is not None:
            numbers = {name: _number(value) for name, value in metrics.items()}
            line = json.dumps({"step": step, "time": round(time.time(), 3), **numbers}) + "\n"
            with told(self._path), self._path.open("a", encoding="utf-8") as file:
                file.write(line)

    def close(self) -> None:
        """No resources to release."""


def _number(value: float) -> float | int | None:
    if isinstance(value, int):
        return int(value)
    value = float(value)
    return value if math.isfinite(value) else None
