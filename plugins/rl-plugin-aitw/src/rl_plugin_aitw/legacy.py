"""GUI-Rise's published reward for AITW, including its errors. Values are between 0 and 1.3125."""

from __future__ import annotations

from rlcore_gui.actions import Action
from rlcore_gui.legacy import LegacyAction, parts
from rlcore_gui.rewards import AnswerReward, AnswerScore
from rlcore_gui.steps import GuiStep

from rl_plugin_aitw.actions import CLICK, TYPE
from rl_plugin_aitw.gestures import TYPE_IDS, predicted_gestures, recorded_gestures
from rl_plugin_aitw.matching import official_matches


def score_legacy(text: str, step: GuiStep) -> AnswerScore:
    """``(action + 0.2 · action format + 0.4 · think format) / 1.6``.

    The action is 1.5 for a click that matches officially or an equal typed text, and 1 for another action with the
    right name. A screen without boxes scores 0 for the action, and so does a recorded click that is a drag.
    """
    found = parts(text, lambda action: _action(action, step) if step.boxes else 0.0)
    value = (found["action"] + 0.2 * found["action_format"] + 0.4 * found["think_format"]) / 1.6
    return AnswerScore(value=value, components=found)


def _action(found: LegacyAction, step: GuiStep) -> float:
    name = found.name.upper()
    if step.action.name == CLICK:
        if name not in TYPE_IDS or (name == CLICK and found.position is None):
            return 0.0
        position = found.position if name == CLICK else None
        predicted = predicted_gestures([Action(name=name, position=position)])
        return 1.5 * bool(official_matches(predicted, recorded_gestures([step]), [step.boxes])[0])
    if step.action.name == TYPE and name == TYPE:
        return 1.5 * (found.value is not None and found.value.lower() == (step.action.value or "").lower())
    return float(name == step.action.name)


legacy_reward = AnswerReward(score_legacy)
