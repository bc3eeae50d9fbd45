"""The dataset ``robotwin``: seeds of a bundled task, and demonstrations of its expert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from rlcore.errors import UserError
from rlcore.types import NumberArray, RecordedEpisode, Task

from rl_plugin_robotwin.data_config import HELD_OUT, SHOWN, DataConfig
from rl_plugin_robotwin.demonstration_file import read
from rl_plugin_robotwin.demonstrations import Demonstration, demonstrations
from rl_plugin_robotwin.environment import BimanualEnvironment


class BundledTasks:
    """Seeds of the environment's task. Demonstrations are recorded once, in the run's own environment.

    Args:
        config: the table ``[data]``.
        environment: creates an environment of the run.
    """

    def __init__(self, config: DataConfig, *, environment: Callable[[], object] | None = None) -> None:
        self._config, self._environment = config, environment
        self._shown: list[RecordedEpisode] = []

    def tasks(self, split: str) -> Sequence[Task]:
        """One task for each seed of ``train`` or ``evaluation``."""
        held_out = split == "evaluation"
        count, first = (self._config.evaluation, HELD_OUT) if held_out else (self._config.train, 0)
        return [Task(id=str(first + n), messages=(), fields={"seed": first + n}) for n in range(count)]

    def episodes(self, count: int, *, seed: int) -> Iterator[RecordedEpisode]:
        """Demonstrations: those of the file, or of the expert, which are the same ones for every `seed`.

        Raises:
            UserError: the environment is not one of the bundled tasks.
            DataError: the expert fails too often, or the file cannot be read.
        """
        if len(self._shown) < count:
            self._shown = [recorded(shown) for shown in self._demonstrations(count)]
        yield from self._shown[:count]

    def _demonstrations(self, count: int) -> Iterable[Demonstration]:
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
    return RecordedEpisode(
        observations={name: NumberArray.of(rows) for name, rows in shown.observations.items()},
        actions=NumberArray.of(shown.actions),
        instruction=shown.instruction,
    )
