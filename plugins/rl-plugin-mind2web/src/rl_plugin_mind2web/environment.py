"""The environment ``mind2web``, and the reward that depends on its next step."""

from __future__ import annotations

from rlcore_gui.environment import GuiEnvironment, GuiEnvironmentConfig
from rlcore_gui.history_summary import HistorySummaryReward

from rl_plugin_mind2web.benchmark import MIND2WEB


class EnvironmentConfig(GuiEnvironmentConfig):
    """``[environment]``: a single step or a recorded episode, as the data set provides it (``data.episodes``)."""

    id: str = "mind2web"
    """Id of the environment."""


class Mind2WebScreens(GuiEnvironment):
    """Recorded screens of Mind2Web."""

    benchmark = MIND2WEB


class Mind2WebHistorySummary(HistorySummaryReward):
    """The reward of a history summary."""

    benchmark = MIND2WEB


__all__ = ["EnvironmentConfig", "Mind2WebHistorySummary", "Mind2WebScreens"]
