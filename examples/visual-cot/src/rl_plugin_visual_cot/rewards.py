"""The reward: a correct answer, the exact format, and a chain of thought that leads to the answer."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore import RewardResult, Task, Trajectory, UserError

from rl_plugin_visual_cot.config import RewardConfig
from rl_plugin_visual_cot.grammar import Answer, parse
from rl_plugin_visual_cot.matching import concludes_with, matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is right about an answer."""

    parsed: Answer
    correct: bool
    """Whether the answer is the expected one."""
    consistent: bool
    """Whether the chain of thought concludes with the given answer."""


def judge(text: str, expected: str, question: str = "") -> Verdict:
    """Judge the text of a model."""
    parsed = parse(text)
    return Verdict(
        parsed=parsed,
        correct=matches(parsed.answer, expected, question),
        consistent=bool(parsed.answer) and concludes_with(parsed.think, parsed.answer),
    )


class VisualCotReward:
    """The weighted sum of three components, between 0 and 1.

    A text without a complete answer scores 0, so it is never better than a wrong answer.
    """

    def __init__(self, config: RewardConfig) -> None:
        self.config = config
        total = config.accuracy + config.format + config.consistency
        if abs(total - 1) > 1e-9:
            found = f"{config.accuracy} + {config.format} + {config.consistency} = {total:g}"
            raise UserError("the weights of the reward visual-cot must sum to 1", found=found)

    def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Score the last message."""
        expected, question = str(task.fields["answer"]), str(task.fields.get("question", ""))
        verdict = judge(trajectory.final_response, expected, question)
        parts = {
            "accuracy": float(verdict.correct),
            "format": float(verdict.parsed.well_formed),
            "consistency": float(verdict.consistent),
        }
        weights = {name: float(getattr(self.config, name)) for name in parts}
        if all(parts.values()):
            return RewardResult(value=1.0, components=parts)
        value = sum(weights[name] * part for name, part in parts.items()) if verdict.parsed.answer else 0.0
        return RewardResult(value=value, components=parts)
