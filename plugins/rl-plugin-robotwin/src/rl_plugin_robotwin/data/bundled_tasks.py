"""The dataset ``robotwin``: seeds of a bundled task, and demonstrations of its expert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from rlcore.errors import DataError, UserError
from rlcore.types import RecordedEpisode, Task

from rl_plugin_robotwin.config import SHOWN, DataConfig
from rl_plugin_robotwin.data.demonstrations import Demonstration, demonstrations, read
from rl_plugin_robotwin.data.seeded_tasks import SeededTasks, episode_of
from rl_plugin_robotwin.environment import BimanualEnvironment


class BundledTasks(SeededTasks[DataConfig]):
    """Seeds of a bundled task. Demonstrations are those of the file, or of the expert."""

    def tasks(self, split: str) -> Sequence[Task]:
        """One task for each seed. Raises `DataError` if the file of demonstrations is not there."""
        file = self._config.demonstrations
        if file is not None and not file.expanduser().is_file():
            found = f"no such file: {file}" if not file.expanduser().exists() else f"no file: {file}"
            fix = "give a file of rlcore data prepare robotwin, or remove the key to record demonstrations"
            raise DataError("demonstrations cannot be read", found=found, where="data.demonstrations", fix=fix)
        return super().tasks(split)

    def _demonstrations(self, count: int) -> Iterable[RecordedEpisode]:
        return map(recorded, self._shown_by_the_expert(count))

    def _shown_by_the_expert(self, count: int) -> Iterable[Demonstration]:
        made = self._environment() if self._environment is not None else None
        own = getattr(made, "unwrapped", None)
        if self._config.demonstrations is not None:
            config = own.config if isinstance(own, BimanualEnvironment) else None
            if made is not None:
                made.close()
            yield from islice(read(self._config.demonstrations.expanduser(), config), count)
            return
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
