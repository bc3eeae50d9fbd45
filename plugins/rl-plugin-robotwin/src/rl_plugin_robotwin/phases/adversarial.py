"""Phase 3: the world model learns what the explorer finds, and the explorer is rewarded where the model is wrong."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rlcore_control.episodes import Decide

from rl_plugin_robotwin.phases.exploring import ExploringTrainer
from rl_plugin_robotwin.phases.sequences import Sequences
from rl_plugin_robotwin.phases.world_model import Predictions, evaluate

HOLD = 8
"""Steps for which an action of the probe set is held."""


class AdversarialTrainer(ExploringTrainer):
    """Phase 3."""

    phase = "adversarial"

    def _after_restore(self) -> None:
        self._probe = self._fixed("probe", self._config.probe, self._random(hold=HOLD))

    @property
    def _warm(self) -> bool:
        """Whether the warm-up is still in progress, which is counted in steps of the environments."""
        return self._steps < int(self._config.warmup_steps)

    def _decide(self) -> Decide:
        self._randomly = self._warm
        return self._random(hold=1) if self._warm else self._acting

    def _learn(self, batch: Sequences | None, numbers: Sequence[int], before: Predictions | None) -> dict[str, float]:
        relative = self._relative(before)
        metrics = self._train_world_model()
        if self._randomly:
            return {**metrics, "explorer/active": 0.0}
        collapsed = relative < self._config.collapse_error
        if collapsed:
            text = f"the world model's error is {relative:.3g} of a copy's: the explorer waits"
            self._tell(text, level=logging.WARNING)
        updates = 0 if collapsed else self._config.explorer_updates
        metrics |= self._explore(batch, numbers, before, updates=updates, trained=True)
        return {**metrics, "explorer/active": float(not collapsed)}

    def _relative(self, before: Predictions | None) -> float:
        """Return the error of the round's predictions, relative to that of a copy on the held-out episodes."""
        sums = {"error": float(before.error_BT.sum()) if before is not None else 0.0}
        sums |= {"steps": float((before.error_BT != 0).sum()) if before is not None else 0.0}
        total = self._strategy.processes.sum(sums)
        if not hasattr(self, "_copy"):
            self._copy = evaluate(self.world_model, self.network, self._held_out, self._strategy)["copy"]
        return total["error"] / max(1.0, total["steps"]) / self._copy

    def _evaluated(self) -> dict[str, float]:
        found = evaluate(self.world_model, self.network, self._probe, self._strategy)
        text = f"probe     loss {found['loss']:.4f}; copy of the last frame {found['copy']:.4f}"
        self._tell(text, level=logging.INFO)
        return {"world_model/probe": found["loss"], "world_model/probe_copy": found["copy"]}
