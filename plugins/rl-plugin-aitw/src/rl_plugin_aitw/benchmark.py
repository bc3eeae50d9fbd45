"""AITW as environments, rewards and evaluations see it."""

from __future__ import annotations

from rlcore_gui.actions import Action
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import GuiStep

from rl_plugin_aitw.actions import ACTIONS
from rl_plugin_aitw.metrics import measure, summarize
from rl_plugin_aitw.scoring import match_all

SHOWN = (
    "action",
    "strict_action",
    "episode_success",
    "strict_episode_success",
    "type",
    "strict_text",
    "click",
    "strict_scroll",
    "general/action",
    "install/action",
    "googleapps/action",
    "single/action",
    "webshopping/action",
    "macro/action",
    "format",
)
"""The metrics that an evaluation prints."""


def score_action(action: Action | None, step: GuiStep) -> float:
    """1 if the action matches strictly, else 0."""
    (match,) = match_all([action], [step])
    return float(match.strict)


AITW = Benchmark(
    name="aitw",
    table=ACTIONS,
    score=score_action,
    measure=measure,
    summarize=summarize,
    right="action",
    shown=SHOWN,
    balanced=("",),
)

__all__ = ["AITW"]
