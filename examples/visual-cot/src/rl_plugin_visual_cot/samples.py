"""The samples of an evaluation: their verdicts, and the numbers that summarise them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore import Group, Stop
from rlcore.episodes.evaluation import wilson

from rl_plugin_visual_cot.matching import tokens
from rl_plugin_visual_cot.rewards import Verdict, judge

CLASSES = {"yes or no": {"yes", "no"}, "left or right": {"left", "right"}}
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One answer to one question."""

    image_id: str
    question: str
    expected: str
    text: str
    """What the model wrote."""
    verdict: Verdict
    truncated: bool
    """Whether the token limit ended the answer."""
    failed: bool
    """Whether the episode failed, so that there is no answer to judge."""

    @property
    def kind(self) -> str:
        """The class of the expected answer."""
        words = set(tokens(self.expected))
        return next((name for name, answers in CLASSES.items() if words and words <= answers), OTHER)

    def as_json(self) -> dict[str, Any]:
        """Return the record for ``eval_samples_*.json``."""
        return {
            "image_id": self.image_id,
            "instruction": self.question,
            "gt_answer": self.expected,
            "prediction_raw": self.text,
            "pred_think": self.verdict.parsed.think,
            "pred_answer": self.verdict.parsed.answer,
            "is_correct": None if self.failed else self.verdict.correct,
            "is_consist": None if self.failed else self.verdict.consistent,
        }


def samples_of(groups: Sequence[Group]) -> Iterator[Sample]:
    """Yield one sample for each trajectory, in order."""
    for group in groups:
        fields = group.task.fields
        question, expected = str(fields.get("question", "")), str(fields.get("answer", ""))
        for trajectory in group.trajectories:
            text = trajectory.final_response
            yield Sample(
                image_id=str(fields.get("image_id", group.task.id)),
                question=question,
                expected=expected,
                text=text,
                verdict=judge(text, expected, question),
                truncated=trajectory.stop is Stop.LENGTH,
                failed=not trajectory.scorable,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers of an evaluation. Failed episodes count only in ``samples`` and ``failed``."""

    samples: int
    failed: int
    accuracy: float | None
    interval: tuple[float, float]
    """95 % interval of the accuracy."""
    consistency: float | None
    """Fraction of the correct answers whose chain of thought concludes with the answer."""
    truncated: float
    unanswered: float
    """Fraction without a complete answer."""
    classes: dict[str, tuple[float, int]]
    """Accuracy and number of samples by class of the expected answer."""


def numbers_of(samples: Sequence[Sample]) -> Numbers:
    """Summarise an evaluation."""
    judged = [sample for sample in samples if not sample.failed]
    correct = [sample for sample in judged if sample.verdict.correct]
    accuracy = len(correct) / len(judged) if judged else None
    classes = {}
    for kind in (*CLASSES, OTHER):
        found = [sample.verdict.correct for sample in judged if sample.kind == kind]
        if found:
            classes[kind] = (sum(found) / len(found), len(found))
    return Numbers(
        samples=len(samples),
        failed=len(samples) - len(judged),
        accuracy=accuracy,
        interval=wilson(accuracy, len(judged)) if accuracy is not None else (0.0, 1.0),
        consistency=sum(sample.verdict.consistent for sample in correct) / len(correct) if correct else None,
        truncated=sum(sample.truncated for sample in judged) / max(len(judged), 1),
        unanswered=sum(not sample.verdict.parsed.answer for sample in judged) / max(len(judged), 1),
        classes=classes,
    )


def lines_of(numbers: Numbers) -> list[str]:
    """Return the lines that describe an evaluation."""
    low, high = numbers.interval
    lines = [
        f"Evaluation accuracy: {_shown(numbers.accuracy)}",
        f"95 % interval of the accuracy: {low:.3f} to {high:.3f}",
        f"Consistent samples percentage: {_shown(numbers.consistency)}",
    ]
    lines += [f"Accuracy, {kind}: {value:.3f} of {count}" for kind, (value, count) in numbers.classes.items()]
    lines.append(f"Truncated: {numbers.truncated:.3f}, unanswered: {numbers.unanswered:.3f}, failed: {numbers.failed}")
    return lines


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


__all__ = ["Numbers", "Sample", "lines_of", "numbers_of", "samples_of"]
