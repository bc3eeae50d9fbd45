"""The steps of a source as a teacher sees them: all of them, also those that cannot be trained on.

Axes: ``N`` the steps of an episode, ``B`` all of their boxes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlcore.errors import DataError

from rlcore_gui.actions import Action, ActionTable
from rlcore_gui.labels.config import SourceLabelTable
from rlcore_gui.labels.labelling import label
from rlcore_gui.prepare.screenshots import ImageFolder
from rlcore_gui.prepare.sources import Source, SourceEpisode, episodes, step_numbers
from rlcore_gui.steps import GuiStep


def label_source(config: SourceLabelTable, source: Source, table: ActionTable, *, screen: str) -> Mapping[str, object]:
    """Label the recorded steps of source files, and return a summary. Raises as `rlcore_gui.labels.labelling.label`.

    Raises:
        DataError: a file or the folder of images cannot be read, or no episode can.
    """
    recorded = RecordedEpisodes(source, config)
    summary = label(config, recorded, table, screen=screen)
    unreadable = {f"unreadable episodes: {reason}": count for reason, count in recorded.unreadable.items()}
    return {"episodes": recorded.readable, **unreadable, **summary}


class RecordedEpisodes:
    """Reads the episodes of source files, one at a time. Can be read again."""

    def __init__(self, source: Source, config: SourceLabelTable) -> None:
        self.readable = 0
        self.unreadable: Counter[str] = Counter()
        """Items that are no episode, by reason."""
        self._source = source
        self._paths = [Path(name).expanduser() for name in config.source]
        self._folder = ImageFolder(Path(config.images).expanduser())

    def __call__(self) -> Iterator[Sequence[GuiStep]]:
        """Read the episodes."""
        self.readable = 0
        self.unreadable.clear()
        for episode in episodes(
            self._source, self._paths, unreadable=lambda reason, _: self.unreadable.update([reason])
        ):
            self.readable += 1
            yield self._steps(episode)
        if not self.readable:
            found = ", ".join(f"{count} times {reason}" for reason, count in self.unreadable.most_common())
            where = ", ".join(map(str, self._paths))
            raise DataError("the source must contain episodes", found=found or "no items", where=where)

    def _skip(self, reason: str, place: str) -> None:
        self.unreadable[reason] += 1

    def _steps(self, episode: SourceEpisode) -> Sequence[GuiStep]:
        sizes_N = self._folder.sizes(episode.images)
        columns = self._source.columns(episode.steps, sizes_N)
        indices_N = step_numbers(columns.index_N)
        return [
            GuiStep(
                row_id=f"{self._source.dataset}/{episode.id}/{index}",
                episode_id=episode.id,
                step_index=index,
                group=episode.group,
                task=columns.task_N[number],
                image=None if isinstance(size, str) else self._folder.path / str(episode.images[number]),
                image_size=None if isinstance(size, str) else size,
                action=_action(columns.action_N[number], columns.value_N[number], columns.position_N2[number].tolist()),
            )
            for number, (index, size) in enumerate(zip(indices_N, sizes_N, strict=True))
        ]


def _action(name: str, value: str | None, position: Sequence[float]) -> Action:
    x, y = position
    return Action(name=name, value=value, position=None if math.isnan(x) or math.isnan(y) else (x, y))
