"""The environment ``aitw``, and the reward that depends on its next step."""

from __future__ import annotations

from rlcore_gui.environment import GuiEnvironment, GuiEnvironmentConfig
from rlcore_gui.history_summary import HistorySummaryReward

from rl_plugin_aitw.benchmark import AITW


class EnvironmentConfig(GuiEnvironmentConfig):
    """``[environment]``: a single step or a recorded episode, as the data set provides it (``data.episodes``)."""

    id: str = "aitw"
    """Id of the environment."""


class AitwScreens(GuiEnvironment):
    """Recorded screens of AITW."""

    benchmark = AITW


class AitwHistorySummary(HistorySummaryReward):
    """The reward of a history summary."""

    benchmark = AITW


__all__ = ["AitwHistorySummary", "AitwScreens", "EnvironmentConfig"]
