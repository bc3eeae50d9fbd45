"""The hook implementations of plugins with recorded screens, whose `plugin.py` fills in one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlcore.hookspecs import hookimpl
from rlcore.specs import DatasetSpec, EnvironmentSpec, RewardSpec, Spec

if TYPE_CHECKING:
    from rlcore.report import TurnNote
    from rlcore.types import Group, Task, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedScreens:
    """The hooks of one data set.

    Its package has these modules:

    - ``benchmark`` with ``BENCHMARK``
    - ``environment`` with ``Screens``, and the rewards ``Reward``, ``HistorySummary``, ``action_reward`` and
      ``format_reward``
    - ``legacy`` with ``legacy_reward``
    - ``dataset`` with ``Data``, ``prepare``, ``PrepareConfig``, ``label`` and ``LabelConfig``
    """

    id: str
    """Of the environment, the dataset and the recommended reward, and name of the benchmark."""
    package: str
    environment: str
    """Summary of the environment."""
    dataset: str
    """Summary of the dataset."""
    reward: str
    """Summary of the recommended reward."""
    action: str
    """Summary of the reward for the action alone."""
    legacy_maximum: float
    """Largest value of the published reward."""

    @property
    def specs(self) -> list[Spec]:
        """The environment, the rewards and the recorded episodes."""
        rewards, dataset = f"{self.package}.environment", f"{self.package}.dataset"
        return [
            EnvironmentSpec(
                id=self.id,
                target=f"{self.package}.environment:Screens",
                config="rlcore_gui.environment:GuiEnvironmentConfig",
                modalities=frozenset({"text", "image"}),
                summary=self.environment,
            ),
            RewardSpec(
                id=self.id, target=f"{rewards}:Reward", config="rlcore_gui.rewards:FormConfig", summary=self.reward
            ),
            RewardSpec(id=f"{self.id}-action", target=f"{rewards}:action_reward", summary=self.action),
            RewardSpec(
                id=f"{self.id}-format",
                target=f"{rewards}:format_reward",
                summary="1 if the answer follows the strict grammar, else 0.",
            ),
            RewardSpec(
                id=f"{self.id}-legacy",
                target=f"{self.package}.legacy:legacy_reward",
                summary="GUI-Rise's published reward, including its errors.",
                maximum=self.legacy_maximum,
            ),
            RewardSpec(
                id=f"{self.id}-history-summary",
                target=f"{rewards}:HistorySummary",
                config="rlcore_gui.rewards:HistorySummaryConfig",
                summary="How well the next step is answered with the history summary as its memory.",
            ),
            DatasetSpec(
                id=self.id,
                target=f"{dataset}:Data",
                config="rlcore_gui.drawn.dataset:DrawnDataConfig",
                prepare=f"{dataset}:prepare",
                prepare_config=f"{dataset}:PrepareConfig",
                label=f"{dataset}:label",
                label_config=f"{dataset}:LabelConfig",
                summary=self.dataset,
            ),
        ]

    @hookimpl
    def rlcore_rollouts_scored(
        self, run: Any, step: int, purpose: str, groups: Sequence[Group]
    ) -> Mapping[str, float] | None:
        """Write the results of evaluations, in runs with ``observers = ["ID"]``."""
        if purpose != "evaluation":
            return None
        from rlcore_gui.evaluation import evaluated

        return evaluated(self._benchmark(), run, step, groups)

    @hookimpl
    def rlcore_turn_notes(self, task: Task, trajectory: Trajectory) -> list[TurnNote | None] | None:
        """Draw taps on screenshots."""
        if task.fields.get("benchmark") != self.id:
            return None
        from rlcore_gui.notes import turn_notes

        return turn_notes(self._benchmark(), task, trajectory)

    def _benchmark(self) -> Any:
        return import_module(f"{self.package}.benchmark").BENCHMARK


__all__ = ["RecordedScreens"]
