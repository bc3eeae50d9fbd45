"""Mind2Web as environments, rewards and evaluations see it, with the metrics of SeeClick's and Mind2Web's programs.

| Measure | Steps | |
|---|---|---|
| ``element`` | all | the point is in the box of the target |
| ``operation_f1`` | all | F1 of the words of the operation, as in SeeClick |
| ``step`` | all | the right element, and an operation F1 of 1 |
| ``click_f1``, ``type_f1``, ``select_f1`` | with this operation | its operation F1 |
| ``plain_f1``, ``plain_step`` | all | ``operation_f1`` and ``step`` without words of punctuation, as in Mind2Web |
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

from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.matching import match

OF_CLASSES = tuple(f"{kind.name.lower()}_f1" for kind in ACTIONS.kinds)
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


def measure(answers: Sequence[ParsedAnswer], steps: Sequence[GuiStep]) -> list[StepScores]:
    """The measures of each answer."""
    return [StepScores.of(step, _measures(answer, step)) for answer, step in zip(answers, steps, strict=True)]


def summarize(scores: Sequence[StepScores]) -> Metrics:
    """Metrics under flat names.

    ``element`` and ``step`` are means over steps. ``operation_f1`` is the mean over the operations that occur, as
    published, and ``macro/…`` are means over episodes. ``episode_success`` is the share of episodes without a failed
    step. ``GROUP/…`` are the same metrics of a group, and ``groups/…`` their unweighted means.
    """
    groups = by_group(scores, _of_part)
    flat = _of_part(scores)
    flat |= {f"{group}/{name}": value for group, part in groups.items() for name, value in part.items()}
    return flat | {f"groups/{name}": value for name, value in mean_of_parts(groups.values()).items()}


def _of_part(scores: Sequence[StepScores]) -> Metrics:
    found = means(scores)
    classes = [found[name] for name in OF_CLASSES if name in found]
    if classes:
        found["operation_f1"] = sum(classes) / len(classes)
    macro = macro_by_episode(scores)
    found |= {f"macro/{name}": macro[name] for name in ("element", "operation_f1", "step") if name in macro}
    share = episode_success(scores, "step")
    return found if share is None else found | {"episode_success": share}


def _measures(answer: ParsedAnswer, step: GuiStep) -> Metrics:
    found = match(answer.action, step)
    return {
        "element": float(found.element),
        "operation_f1": found.operation_f1,
        "step": float(found.step),
        f"{step.action.name.lower()}_f1": found.operation_f1,
        "plain_f1": found.plain_f1,
        "plain_step": float(found.element and found.plain_f1 == 1),
        "format": float(answer.strict),
        "readable": float(answer.action is not None),
    }


BENCHMARK = Benchmark(
    name="mind2web",
    table=ACTIONS,
    score=score_action,
    measure=measure,
    summarize=summarize,
    components={name: name for name in ("step", "element", "operation_f1", "readable")},
    right="step",
    shown=SHOWN,
    balanced=("groups",),
)

__all__ = ["BENCHMARK", "measure", "summarize"]
