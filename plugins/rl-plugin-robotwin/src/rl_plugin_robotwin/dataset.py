"""The dataset ``robotwin``: seeds of a bundled task, and demonstrations of its expert."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from rlcore.errors import UserError
from rlcore.types import RecordedEpisode

from rl_plugin_robotwin.data_config import SHOWN, DataConfig
from rl_plugin_robotwin.demonstration_file import read
from rl_plugin_robotwin.demonstrations import Demonstration, demonstrations
from rl_plugin_robotwin.environment import BimanualEnvironment
from rl_plugin_robotwin.seeded_tasks import SeededTasks, episode_of


class BundledTasks(SeededTasks[DataConfig]):
    """Seeds of a bundled task. Demonstrations are those of the file, or of the expert."""

    def _demonstrations(self, count: int) -> Iterable[RecordedEpisode]:
        return map(recorded, self._shown_by_the_expert(count))

    def _shown_by_the_expert(self, count: int) -> Iterable[Demonstration]:
        if self._config.demonstrations is not None:
            yield from islice(read(self._config.demonstrations), count)
            return
        made = self._environment() if self._environment is not None else None
        own = getattr(made, "unwrapped", None)
        if not isinstance(own, BimanualEnvironment):
            raise UserError(
                "demonstrations are recorded in a bundled task",
                found=type(made).__name__,
                where="environment.id",
                fix="set data.demonstrations to a file of rlcore data prepare robotwin, or warmup.steps=0; for "
                "environment.id=robotwin-checkout, data.id=robotwin-checkout has those of RoboTwin's experts",
            )
        try:
            yield from demonstrations(own, count, seed=SHOWN)
        finally:
            own.close()


def recorded(shown: Demonstration) -> RecordedEpisode:
    """A demonstration as rlcore stores it."""
    return episode_of(shown.observations, shown.actions, shown.instruction)
