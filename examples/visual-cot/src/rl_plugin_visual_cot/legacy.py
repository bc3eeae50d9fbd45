"""The reward of the original program with its known errors, to compare with published curves.

The value is between -0.8 and 3.3. Use `rl_plugin_visual_cot.rewards.VisualCotReward` to train.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlcore import RewardResult, Task, Trajectory

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL | re.IGNORECASE)
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL | re.IGNORECASE)
_GROUPS = (
    "no not false nope negative cannot cant incorrect "
    "couldnt doesnt didnt isnt arent wasnt werent dont never none nothing",
    "yes true correct yep positive is are",
    "left west",
    "right east",
)
_SYNONYMS = tuple(frozenset(words.split()) for words in _GROUPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyScore:
    """The parts of the reward."""

    value: float
    format: float
    correct: bool
    consistent: bool


def is_match(prediction: str, expected: str) -> bool:
    """Return whether a synonym of the expected answer, or the answer itself, is a word of the prediction.

    Known errors: "is" means yes, any negation means no, and answers of several words never match within a sentence.
    """
    found, wanted = _cleaned(prediction), _cleaned(expected)
    if found == wanted:
        return True
    words = found.split()
    for group in _SYNONYMS:
        if wanted in group:
            return any(word in group for word in words)
    return wanted in words


def legacy_score(text: str, expected: str) -> LegacyScore:
    """Score a completion.

    - 0.2 for each of the four tags, wherever it occurs
    - without an answer nothing else; -1 for a wrong answer
    - 2 for a correct answer: 0.5 more if the chain of thought contains the expected answer, 0.5 less if it does not,
      and 0.5 less if the answer has more than three words
    """
    form = sum(0.2 for tag in TAGS if tag in text)
    answer = match[1].strip() if (match := _ANSWER.search(text)) else ""
    think = match[1].strip() if (match := _THINK.search(text)) else ""
    if not answer:
        return LegacyScore(value=form, format=form, correct=False, consistent=False)
    if not is_match(answer, expected):
        return LegacyScore(value=form - 1.0, format=form, correct=False, consistent=False)
    consistent = bool(think) and is_match(think, expected)
    main = 2.0
    if think:
        main += 0.5 if consistent else -0.5
    if len(answer.split()) > 3:
        main -= 0.5
    return LegacyScore(value=form + main, format=form, correct=True, consistent=consistent)


def legacy_reward(trajectory: Trajectory, task: Task) -> RewardResult:
    """Score the last message, for ``[[reward]] id = "visual-cot-legacy"``."""
    score = legacy_score(trajectory.final_response, str(task.fields["answer"]))
    parts = {"accuracy": float(score.correct), "format": score.format, "consistency": float(score.consistent)}
    return RewardResult(value=round(score.value, 9), components=parts)


def _cleaned(text: str) -> str:
    return re.sub(r"[^\w\s]", "", text.lower()).strip()
