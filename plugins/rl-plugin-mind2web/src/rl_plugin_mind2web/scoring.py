"""How well one answer solves one step of Mind2Web."""

from __future__ import annotations

from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.rewards import AnswerReward, AnswerScore, FormConfig, blend
from rlcore_gui.steps import GuiStep

from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.matching import Match, match


def score_action(text: str, step: GuiStep) -> AnswerScore:
    """1 if the step succeeds, else 0."""
    _, found, components = _judged(text, step)
    return AnswerScore(value=float(found.step), components=components)


def score_format(text: str, step: GuiStep) -> AnswerScore:
    """1 if the answer follows the strict grammar, else 0."""
    answer, _, _ = _judged(text, step)
    return AnswerScore(value=float(answer.strict), components={"readable": float(answer.action is not None)})


class Mind2Web(AnswerReward):
    """The recommended reward: the F1 of the operation on the right element, and the strict grammar.

    A wrong element scores 0 for the action, whatever the operation is: most operations are clicks, so the operation
    alone says little.
    """

    def __init__(self, config: FormConfig) -> None:
        super().__init__(self._weighted)
        self.weight = config.format_weight

    def _weighted(self, text: str, step: GuiStep) -> AnswerScore:
        answer, found, components = _judged(text, step)
        value = blend(found.element * found.operation_f1, float(answer.strict), self.weight)
        return AnswerScore(value=value, components={**components, "format": float(answer.strict)})


action_reward = AnswerReward(score_action)
format_reward = AnswerReward(score_format)


def _judged(text: str, step: GuiStep) -> tuple[ParsedAnswer, Match, dict[str, float]]:
    answer = parse(text, ACTIONS)
    found = match(answer.action, step)
    components = {
        "step": float(found.step),
        "element": float(found.element),
        "operation_f1": found.operation_f1,
        "readable": float(answer.action is not None),
    }
    return answer, found, components
