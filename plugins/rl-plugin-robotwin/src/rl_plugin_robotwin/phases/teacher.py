"""Phase 1: the world model learns to predict the next frame of random actions."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore_control.episodes import Decide

from rl_plugin_robotwin.phases.sequences import Sequences
from rl_plugin_robotwin.phases.trainer import PhaseTrainer
from rl_plugin_robotwin.phases.world_model import Predictions


class TeacherTrainer(PhaseTrainer):
    """Phase 1."""

    phase = "teacher"

    def _decide(self) -> Decide:
        return self._random(hold=1)

    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        return self._train_world_model()
