"""How well one answer solves one step of AITW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlcore_gui.actions import Action
from rlcore_gui.answers import ParsedAnswer, parse
from rlcore_gui.rewards import AnswerReward, AnswerScore, FormConfig, blend
from rlcore_gui.steps import GuiStep

from rl_plugin_aitw.actions import ACTIONS, SCROLLS, TYPE
from rl_plugin_aitw.gestures import predicted_gestures, reference_gestures
from rl_plugin_aitw.matching import official_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How a predicted action compares with the recorded one."""

    official: bool
    """The official matching, which ignores typed text and the direction of a scroll."""
    strict: bool
    """As official, with equal text and the direction of the scroll."""
    same_type: bool
    """Whether both have the same official type, in which taps and scrolls are one."""


def match_all(actions: Sequence[Action | None], steps: Sequence[GuiStep]) -> list[Match]:
    """Compare predicted actions with recorded ones. None stands for an answer without a readable action."""
    predicted, reference = predicted_gestures(actions), reference_gestures(steps)
    official = official_matches(predicted, reference, [step.boxes for step in steps]).tolist()
    same_type = (predicted.types_N == reference.types_N).tolist()
    return [
        Match(official=matches, strict=matches and _as_intended(action, step.action), same_type=same)
        for action, step, matches, same in zip(actions, steps, official, same_type, strict=True)
    ]


def same_text(one: str | None, other: str | None) -> bool:
    """Whether two typed texts are equal, without regard to case and white space around words."""
    return _plain(one) == _plain(other)


def score_action(text: str, step: GuiStep) -> AnswerScore:
    """1 if the action matches officially, else 0."""
    _, match, components = _judged(text, step)
    return AnswerScore(value=float(match.official), components=components)


def score_format(text: str, step: GuiStep) -> AnswerScore:
    """1 if the answer follows the strict grammar, else 0."""
    answer, _, _ = _judged(text, step)
    return AnswerScore(value=float(answer.strict), components={"readable": float(answer.action is not None)})


class Aitw(AnswerReward):
    """The recommended reward: the strict match of the action, and the strict grammar."""

    def __init__(self, config: FormConfig) -> None:
        super().__init__(self._weighted)
        self.weight = config.format_weight

    def _weighted(self, text: str, step: GuiStep) -> AnswerScore:
        answer, match, components = _judged(text, step)
        value = blend(float(match.strict), float(answer.strict), self.weight)
        return AnswerScore(value=value, components={**components, "format": float(answer.strict)})


action_reward = AnswerReward(score_action)
format_reward = AnswerReward(score_format)


def _judged(text: str, step: GuiStep) -> tuple[ParsedAnswer, Match, dict[str, float]]:
    answer = parse(text, ACTIONS)
    (match,) = match_all([answer.action], [step])
    components = {
        "action": float(match.official),
        "strict": float(match.strict),
        "type": float(match.same_type),
        "readable": float(answer.action is not None),
    }
    return answer, match, components


def _as_intended(action: Action | None, reference: Action) -> bool:
    """Whether two actions that match officially also agree in what the official matching ignores."""
    assert action is not None
    if reference.name in SCROLLS:
        return action.name == reference.name
    return reference.name != TYPE or same_text(action.value, reference.value)


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).casefold()
