"""AITW as environments, rewards and evaluations see it: official metrics, and strict ones beside them.

| Measure | Steps | |
|---|---|---|
| ``action`` | all | the official matching |
| ``strict_action`` | all | with equal text and the direction of a scroll |
| ``type`` | all | equal official types |
| ``text`` | typing | equal, or one text contains the other; an empty text contains nothing |
| ``strict_text`` | typing | equal without regard to case and white space |
| ``click`` | clicks | the official matching |
| ``both_click`` | clicks that were answered with a click | the official matching |
| ``scroll`` | scrolls | the official matching |
| ``strict_scroll`` | scrolls | the right direction |
| ``format``, ``readable`` | all | the strict grammar; an action that can be read |
"""

from __future__ import annotations

from collections.abc import Sequence

from rlcore_gui.actions import Action
from rlcore_gui.answers import ParsedAnswer
from rlcore_gui.benchmark import (
    Benchmark,
    Metrics,
    StepScores,
    by_group,
    episode_success,
    macro_by_episode,
    mean_of_parts,
    means,
)
from rlcore_gui.steps import GuiStep

from rl_plugin_aitw.actions import ACTIONS, CLICK, SCROLLS, TYPE
from rl_plugin_aitw.matching import Match, match_all, same_text

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


def measure(answers: Sequence[ParsedAnswer], steps: Sequence[GuiStep]) -> list[StepScores]:
    """The measures of each answer."""
    matches = match_all([answer.action for answer in answers], steps)
    return [
        StepScores.of(step, _measures(answer, step, match))
        for answer, step, match in zip(answers, steps, matches, strict=True)
    ]


def summarize(scores: Sequence[StepScores]) -> Metrics:
    """Metrics under flat names: ``action`` and others are unweighted means over the groups, as published.

    ``GROUP/action`` are those of a group, ``micro/action`` means over all steps, ``macro/action`` means over episodes,
    and ``episode_success`` the share of episodes without a mismatch.
    """
    groups = by_group(scores, _of_group)
    flat = mean_of_parts(groups.values())
    flat |= {f"{group}/{name}": value for group, part in groups.items() for name, value in part.items()}
    flat |= {f"micro/{name}": value for name, value in means(scores).items()}
    flat |= {f"macro/{name}": value for name, value in macro_by_episode(scores).items()}
    return flat


def _of_group(scores: Sequence[StepScores]) -> Metrics:
    found = means(scores)
    for name, measured in (("episode_success", "action"), ("strict_episode_success", "strict_action")):
        share = episode_success(scores, measured)
        found |= {} if share is None else {name: share}
    return found


def _measures(answer: ParsedAnswer, step: GuiStep, match: Match) -> Metrics:
    official, reference = float(match.official), step.action.name
    measures = {
        "action": official,
        "strict_action": float(match.strict),
        "type": float(match.same_type),
        "format": float(answer.strict),
        "readable": float(answer.action is not None),
    }
    if reference == TYPE:
        measures["text"] = float(_text_contained(answer.action, step.action))
        measures["strict_text"] = float(match.strict)
    elif reference == CLICK:
        measures["click"] = official
        if answer.action is not None and answer.action.name == CLICK:
            measures["both_click"] = official
    elif reference in SCROLLS:
        measures["scroll"] = official
        measures["strict_scroll"] = float(match.strict)
    return measures


def _text_contained(predicted: Action | None, reference: Action) -> bool:
    if predicted is None or predicted.name != TYPE:
        return False
    if same_text(predicted.value, reference.value):
        return True
    one, other = (predicted.value or "").lower().strip(), (reference.value or "").lower().strip()
    return bool(one) and bool(other) and (one in other or other in one)


BENCHMARK = Benchmark(
    name="aitw",
    table=ACTIONS,
    score=score_action,
    measure=measure,
    summarize=summarize,
    components={"action": "action", "strict": "strict_action", "type": "type", "readable": "readable"},
    right="action",
    shown=SHOWN,
    balanced=("",),
)

__all__ = ["BENCHMARK", "measure", "summarize"]
