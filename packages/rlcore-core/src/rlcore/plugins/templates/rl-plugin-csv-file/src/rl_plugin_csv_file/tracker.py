"""The tracker."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from rlcore import Table


class CsvConfig(Table):
    """``[trackers.csv-file]``. The text below a key is shown with errors and by ``rlcore config show``."""

    prefix: str = ""
    """Write only metrics whose names start with this."""


class CsvTracker:
    """Writes ``step,metric,value``. A resumed run logs the steps after its checkpoint again: the last row counts."""

    def __init__(self, config: CsvConfig, directory: Path) -> None:
        self.prefix = config.prefix
        # An error here ends the run before it trains. One in `log` disables the tracker, and the run continues.
        self.file = (directory / "metrics.csv").open("a", newline="", encoding="utf-8")
        self.writer = csv.writer(self.file)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step, which have names such as ``reward/mean``. Training waits for this call."""
        self.writer.writerows((step, name, value) for name, value in metrics.items() if name.startswith(self.prefix))
        self.file.flush()  # a run can be killed at any time

    def close(self) -> None:
        """Called at the end of the run, also after an error."""
        self.file.close()
