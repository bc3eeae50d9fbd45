"""What ``rlcore diagnose`` finds in a run that goes on. Each step is looked at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from rlcore.diagnosis.diagnosing import Diagnoser, Diagnosis, failure_found
from rlcore.plugins.registry import Registry
from rlcore.runs.directory import config_layer
from rlcore.runs.output import failure_in

from rlcore_view.curves import line_after


class LiveFindings:
    """The findings of a run. Only new lines of its metrics are read.

    Args:
        run: the run directory

    Raises:
        UserError: its configuration cannot be read.
    """

    def __init__(self, run: Path) -> None:
        self._run, self._lock = run, threading.Lock()
        self._start()

    def _start(self) -> None:
        self._diagnoser = Diagnoser(self._run, config_layer(self._run).tree, Registry())
        self._place = 0

    def all(self) -> list[dict[str, Any]]:
        """What is found so far. Metrics that a resumed run has shortened are read from their start."""
        with self._lock:
            for number_of_line, (row, place) in enumerate(line_after(self._run / "metrics.jsonl", self._place)):
                if number_of_line == 0 and place <= self._place:
                    self._start()
                self._place = place
                self._diagnoser.after(row)
            self._diagnoser.evidence.forget_groups()
            found = list(self._diagnoser.found)
            if failure := failure_in(self._run / "output.log"):
                found.append(failure_found(failure, self._diagnoser.evidence.step))
        return [_data(one) for one in found]


def _data(one: Diagnosis) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("rule", "step", "text", "key", "fix", "status")}


__all__ = ["LiveFindings"]
