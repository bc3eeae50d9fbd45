"""What the trackers of services share: the identity of a run, samples, and the repetition of earlier steps."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from rlcore.atomic_files import write_whole
from rlcore.errors import UserError
from rlcore.images import contact_sheet
from rlcore.runs.directory import config_layer, read_metrics
from rlcore.runs.records import read_groups
from rlcore.types import Group, Trajectory

IMAGES = "images"
"""A further column of tables with images."""
COLUMNS = ("step", "task", "sibling", "conversation", "answer", "reward", "stop")
LONGEST = 10_000
"""Maximum number of characters of a text in a table."""
ID = "run-id"
"""File of a run directory with its id at services: a resumed run keeps it, and two runs of one name differ."""


class ServiceTracker(ABC):
    """Sends metrics and samples of evaluations to a service.

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
        self._count, self._rows = samples, list[list[Any]]()

    @abstractmethod
    def send(self, step: int, metrics: Mapping[str, float], rows: Sequence[Sequence[Any]]) -> None:
        """Send the metrics of a step and, unless they are empty, rows of samples with the columns of `columns`."""

    def image(self, data: bytes | None) -> Any:
        """The cell of a table for a PNG, or for a row without images; None if the service has no images."""
        return None

    def columns(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """The names of the columns of a table."""
        return [*COLUMNS, IMAGES][: len(rows[0])]

    def log_samples(self, step: int, purpose: str, groups: Sequence[Group]) -> None:
        """Keep trajectories of an evaluation, which are sent with the metrics of the step."""
        if purpose == "evaluation":
            self._rows = self._sampled(step, groups)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step."""
        rows, self._rows = self._rows, []
        self.send(step, metrics, rows)

    @property
    def can_replay(self) -> bool:
        """Whether this is a resumed run with the metrics of its earlier steps, which the tracker ``jsonl`` wrote."""
        return (self.directory / "metrics.jsonl").exists()

    def replay(self) -> None:
        """Send all steps up to the checkpoint of a resumed run again."""
        for line in read_metrics(self.directory / "metrics.jsonl"):
            step = line.pop("step")
            file = self.directory / "rollouts" / f"evaluation-{step:06d}.jsonl.gz"
            rows = self._sampled(step, read_groups(file)) if file.exists() else []
            self.send(step, {name: line[name] for name in line if name != "time" and line[name] is not None}, rows)

    def _sampled(self, step: int, groups: Iterable[Group]) -> list[list[Any]]:
        """Rows of `COLUMNS`, and `IMAGES` if one of them has images that the service can show."""
        shown = samples(groups, self._count)
        rows = [sample_row(step, one) for one in shown]
        pictures = [contact_sheet(one.images.values()) if one.images else None for one in shown]
        cells = list(map(self.image, pictures)) if any(pictures) else []
        if any(cell is not None for cell in cells):
            for row, cell in zip(rows, cells, strict=True):
                row.append(cell)
        return rows


def samples(groups: Iterable[Group], count: int) -> list[Trajectory]:
    """At most ``count`` trajectories: the first one of each task, then the second ones."""
    siblings = zip_longest(*(group.trajectories for group in groups))
    return list(islice((each for ones in siblings for each in ones if each is not None), count))


def sample_row(step: int, trajectory: Trajectory) -> list[Any]:
    """The values of `COLUMNS`."""
    conversation = "\n\n".join(f"{message.role}: {message.text}" for message in trajectory.messages)
    stop = trajectory.stop if trajectory.failure is None else trajectory.failure
    texts = (conversation[:LONGEST], trajectory.final_response[:LONGEST])
    return [step, trajectory.task_id, trajectory.sibling, *texts, trajectory.reward, str(stop)]


def _id_of(directory: Path) -> str:
    file = directory / ID
    if not file.exists():
        write_whole(file, secrets.token_hex(4))
    return file.read_text(encoding="utf-8").strip()


__all__ = ["COLUMNS", "IMAGES", "ServiceTracker", "sample_row", "samples"]
