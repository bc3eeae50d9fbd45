"""A file of rollouts outside of a run, such as that of ``rlcore eval --save``, as a run of one evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlcore.plain_json import number
from rlcore.rollouts.index import Row, read_index
from rlcore.rollouts.reading import range_of
from rlcore.rollouts.records import purpose_and_step

from rlcore_view.recent import Recent
from rlcore_view.run import ShownRun
from rlcore_view.stored import StepFile, Stored


class StoredFile(Stored):
    """The rollouts of a file, as those of an evaluation at the step that its name has."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent)  # of its images
        self._file = StepFile(max(0, purpose_and_step(path)[1]), "evaluation", False, path)

    def files(self, purpose: str | None = None, steps: str = "all") -> list[StepFile]:
        """The file, unless it is of another purpose or step. Raises as `Stored.files`."""
        step = self._file.step
        first, last = (step, step) if steps == "all" else range_of(steps)
        return [self._file] if purpose in (None, "evaluation") and first <= step <= last else []

    def rows(self, file: StepFile) -> list[Row]:
        """The rows, computed from the groups. Raises `DataError` if the file is damaged."""
        where = {"purpose": file.purpose, "step": file.step}
        return _ROWS.get(file.path, [file.path], lambda: [row | where for row in read_index(file.path)])

    def read(self, file: StepFile, groups: Iterable[tuple[int, int]] | None = None) -> list[Row]:
        """All rows."""
        return self.rows(file)

    def firsts(self, file: StepFile) -> tuple[list[Row], Counter[int]]:
        """All rows."""
        return (rows := self.rows(file)), Counter(row["step"] for row in rows)


class ShownFile(ShownRun):
    """A file of rollouts as a run that has ended, without metrics and configuration."""

    def __init__(self, id: str, path: Path) -> None:
        super().__init__(id, path)
        self.stored = StoredFile(path)

    def known(self) -> dict[str, Any]:
        """Its step and the mean of its rewards. Raises `DataError` if it is damaged."""
        (file,) = self.stored.files()
        rewards = [row["reward"] for row in self.stored.rows(file) if number(row["reward"]) is not None]
        return {"step": file.step, "last": {"reward/mean": sum(rewards) / len(rewards)} if rewards else {}}

    def about(self) -> dict[str, Any]:
        """Nothing is known."""
        return {"config": {}, "origins": {}, "command": "", "surroundings": {}, "checkpoints": []}

    def state(self) -> dict[str, Any]:
        """It does not go on."""
        return {"state": "ended", "activity": "", "step": self.stored.files()[0].step, "metrics": 0, "files": ""}

    def metrics(self, after: int) -> dict[str, Any]:
        """None."""
        return {"rows": [], "next": 0}

    def findings(self) -> list[dict[str, Any]]:
        """None."""
        return []


_ROWS: Recent[list[Row]] = Recent(3)

__all__ = ["ShownFile"]
