"""What the parts of a run report, to whoever shows and stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rlcore.runs import progress
from rlcore.types import Group


class Report(progress.Report, Protocol):
    """Shows and stores what happens in a run. `rlcore.session.session.RunSession` is one."""

    def update(self, line: str) -> None:
        """Like `say`, for progress; the next such line may replace it."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Store the metrics of a step."""
        ...

    def record(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Store scored groups; ``purpose`` is ``train`` or ``evaluation``."""
        ...

    def checkpoint_saved(self, step: int, path: Path) -> None:
        """Report a new checkpoint."""
        ...
