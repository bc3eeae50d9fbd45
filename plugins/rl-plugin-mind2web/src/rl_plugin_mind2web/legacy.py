"""GUI-Rise's published reward for Mind2Web, including its errors. Values are between 0 and 1.7."""

from __future__ import annotations

from rlcore_gui.legacy import LegacyAction, parts
from rlcore_gui.rewards import AnswerReward, AnswerScore
from rlcore_gui.steps import GuiStep


def score_legacy(text: str, step: GuiStep) -> AnswerScore:
    """``action + 0.1 · (action format + think format)``.

    The action is 1.5 for the right name at the right place, and 1 for the right name anywhere. The value is ignored.
    """
    found = parts(text, lambda action: _action(action, step))
    value = found["action"] + 0.1 * (found["action_format"] + found["think_format"])
    return AnswerScore(value=value, components=found)


def _action(found: LegacyAction, step: GuiStep) -> float:
    if found.position is None or not step.boxes or found.name.upper() != step.action.name:
        return 0.0
    x, y = found.position
    top, left, height, width = step.boxes[0]
    x1, y1, x2, y2 = (round(number, 3) for number in (left, top, left + width, top + height))
    return 1.5 if x1 <= x <= x2 and y1 <= y <= y2 else 1.0


legacy_reward = AnswerReward(score_legacy)
