"""Phase 2: an explorer learns from the world model of phase 1."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore_control.episodes import Decide

from rl_plugin_robotwin.phases.exploring import ExploringTrainer
from rl_plugin_robotwin.phases.sequences import Sequences
from rl_plugin_robotwin.phases.world_model import Predictions


class StudentTrainer(ExploringTrainer):
    """Phase 2."""

    phase = "student"
    shown_rate = "explorer_learning_rate"

    def _decide(self) -> Decide:
        return self._acting

    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        trained = self._config.train_world_model
        metrics = self._train_world_model() if trained else {}
        return metrics | self._explore(batch, numbers, before, updates=1, trained=trained)
