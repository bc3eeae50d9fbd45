"""What the trackers of services share: the identity of a run, samples, and the repetition of earlier steps."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.atomic_files import write_whole
from rlcore.errors import UserError
from rlcore.rollouts.records import read_groups
from rlcore.runs.directory import config_layer, read_metrics
from rlcore.trackers.samples import SampleTable, is_sampled, pictures, sample_table, samples
from rlcore.types import Group

PURPOSES = ("train", "evaluation")
ID = "run-id"
"""File of a run directory with its id at services: a resumed run keeps it, and two runs of one name differ."""


class ServiceTracker(ABC):
    """Sends metrics and samples to a service.

    A service cannot replace a step that it received, and a killed process may have lost its last steps. The run
    directory has all of them, so a resumed run replaces the record of the service by `replay` where that is possible.

    Attributes:
        directory: the run directory
        config: the resolved configuration with secrets masked, as in ``config.toml``
        id: of the run directory, random
    """

    def __init__(self, name: str, directory: Path | None, samples: int) -> None:
        if directory is None:
            raise UserError(f"the tracker {name!r} needs a run directory")
        self.directory, self.config = directory, dict(config_layer(directory).tree)
        self.id = _id_of(directory)
        self._count, self._tables = samples, dict[str, SampleTable]()

    @abstractmethod
    def send(self, step: int, metrics: Mapping[str, float], tables: Mapping[str, SampleTable]) -> None:
        """Send the metrics and the tables of a step, by their names."""

    def image(self, data: bytes) -> Any:
        """The cell of a table for a PNG; None if the service has no images."""
        return None

    def log_samples(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Keep some trajectories, which are sent with the metrics of the step."""
        if self._count and is_sampled(step, purpose):
            chosen = samples(groups, self._count)
            cells = [None if data is None else self.image(data) for data in pictures(chosen)]
            self._tables[f"samples/{purpose}"] = sample_table(step, chosen, cells)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step."""
        tables, self._tables = self._tables, {}
        self.send(step, metrics, tables)

    @property
    def can_replay(self) -> bool:
        """Whether this is a resumed run with the metrics of its earlier steps, which the tracker ``jsonl`` wrote."""
        return (self.directory / "metrics.jsonl").exists()

    def replay(self) -> None:
        """Send all steps up to the checkpoint of a resumed run again."""
        for line in read_metrics(self.directory / "metrics.jsonl"):
            step = line.pop("step")
            for purpose in PURPOSES if self._count else ():
                file = self.directory / "rollouts" / f"{purpose}-{step:06d}.jsonl.gz"
                if is_sampled(step, purpose) and file.exists():
                    self.log_samples(step, purpose, list(read_groups(file)))
            self.log(step, {name: line[name] for name in line if name != "time" and line[name] is not None})


def _id_of(directory: Path) -> str:
    file = directory / ID
    if not file.exists():
        write_whole(file, secrets.token_hex(4))
    return file.read_text(encoding="utf-8").strip()


__all__ = ["ServiceTracker"]
