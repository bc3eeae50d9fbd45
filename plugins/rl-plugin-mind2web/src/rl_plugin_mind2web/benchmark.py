"""Mind2Web as environments, rewards and evaluations see it."""

from __future__ import annotations

from rlcore_gui.actions import Action
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import GuiStep

from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.matching import match
from rl_plugin_mind2web.metrics import measure, summarize

SHOWN = (
    "element",
    "operation_f1",
    "step",
    "episode_success",
    "macro/element",
    "macro/operation_f1",
    "macro/step",
    "format",
)
"""The metrics that an evaluation prints."""


def score_action(action: Action | None, step: GuiStep) -> float:
    """The F1 of the operation on the right element, else 0."""
    found = match(action, step)
    return found.element * found.operation_f1


MIND2WEB = Benchmark(
    name="mind2web",
    table=ACTIONS,
    score=score_action,
    measure=measure,
    summarize=summarize,
    right="step",
    shown=SHOWN,
    balanced=("groups",),
)

__all__ = ["MIND2WEB"]
