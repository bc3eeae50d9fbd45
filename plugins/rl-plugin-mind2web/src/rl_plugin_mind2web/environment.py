"""The environment and the rewards of Mind2Web."""

from __future__ import annotations

from rlcore_gui.environment import GuiEnvironment
from rlcore_gui.rewards import ActionReward, FormatReward, HistorySummaryReward, WeightedReward

from rl_plugin_mind2web.benchmark import BENCHMARK


class Screens(GuiEnvironment):
    """Recorded screens of Mind2Web."""

    benchmark = BENCHMARK


class Reward(WeightedReward):
    """The recommended reward."""

    benchmark = BENCHMARK


class HistorySummary(HistorySummaryReward):
    """The reward of a history summary."""

    benchmark = BENCHMARK


action_reward = ActionReward(BENCHMARK)
format_reward = FormatReward(BENCHMARK)
