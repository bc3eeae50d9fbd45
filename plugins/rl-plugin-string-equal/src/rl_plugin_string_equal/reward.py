"""The rewards. ``value=None`` means *not scored*, because the task's answer is invalid. It is different from 0."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from rlcore.types import RewardResult, Task, Trajectory

from rl_plugin_string_equal.config import MathNumericEqualConfig, MathRewardStringEqualConfig, StringEqualConfig
from rl_plugin_string_equal.extract import expected_number, stated_number

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)


def normalise(text: str, ignore: Collection[str]) -> str:
    """Remove the differences named in ``ignore`` from a text. They are applied in the following order.

    ``unicode``: normalisation form NFKC, so that full-width characters and ligatures equal the plain ones.
    ``case``: Unicode case folding.
    ``punctuation``: characters of the Unicode categories P* are removed; symbols such as ``$`` and ``+`` (S*) are kept.
    ``articles``: the words *a*, *an* and *the* are replaced with a space.
    ``whitespace``: runs of white space become one space; leading and trailing white space is removed.
    """
    if "unicode" in ignore:
        text = unicodedata.normalize("NFKC", text)
    if "case" in ignore:
        text = text.casefold()
    if "punctuation" in ignore:
        text = "".join(character for character in text if not unicodedata.category(character).startswith("P"))
    if "articles" in ignore:
        text = _ARTICLES.sub(" ", text)
    if "whitespace" in ignore:
        text = " ".join(text.split())
    return text


_DIGITS = re.compile(r"\d+")


class StringEqual:
    """1 if the final response equals the expected text or one of the accepted texts, else 0."""

    def __init__(self, config: StringEqualConfig):
        self.config = config

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Compare the final response with the accepted texts."""
        expected = task.fields.get(self.config.field)
        accepted = expected if isinstance(expected, (list, tuple)) else (expected,)
        texts = [normalise(str(item), self.config.ignore) for item in accepted if isinstance(item, (str, int, float))]
        if len(texts) < len(accepted) or not all(texts) or not texts:
            return _not_scored(task, self.config.field, "a text, a number or a list of them, not empty")
        return RewardResult(value=float(normalise(trajectory.final_response, self.config.ignore) in texts))


class MathNumericEqual:
    """1 if the number in the final response equals the expected one, compared as exact fractions."""

    def __init__(self, config: MathNumericEqualConfig):
        self.config = config

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Parse both numbers and compare them."""
        expected = expected_number(task.fields.get(self.config.field))
        if expected is None:
            return _not_scored(task, self.config.field, "a number, such as 72, '1,000', '72.00' or '7/2'")
        used_tool = tool_messages(trajectory) > 0
        stated = stated_number(trajectory.final_response)
        if stated is None or (self.config.require_tool and not used_tool):
            value = 0.0
        elif stated == expected:
            value = 1.0
        else:
            value = self.config.partial_credit if used_tool else 0.0
        parts = {
            "equal": float(stated == expected),
            "readable": float(stated is not None),
            "used_tool": float(used_tool),
        }
        return RewardResult(value=value, components=parts)


class MathRewardStringEqual:
    """AgentFly's ``math_reward_string_equal``: 0.0 without a tool message, 1.0 if the answer is correct, else 0.1.

    The answer is correct if the last run of digits in the text of the last assistant or *tool* message is the same
    string as the unmodified ``answer`` of the task. A task without ``answer`` is not scored (AgentFly raises an error).
    """

    def __init__(self, config: MathRewardStringEqualConfig):
        self.config = config

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Compare as AgentFly does."""
        if "answer" not in task.fields:
            return _not_scored(task, "answer", "the expected answer")
        if tool_messages(trajectory) < 1:
            return RewardResult(value=0.0)
        answers = (message.text for message in reversed(trajectory.messages) if message.role in ("assistant", "tool"))
        runs = _DIGITS.findall(next(answers, ""))
        predicted = runs[-1] if runs else None
        return RewardResult(value=1.0 if predicted == task.fields["answer"] else 0.1)


def tool_messages(trajectory: Trajectory) -> int:
    """Number of tool messages, including error messages."""
    return sum(message.role == "tool" for message in trajectory.messages)


def _not_scored(task: Task, field: str, wanted: str) -> RewardResult:
    fields: Mapping[str, Any] = task.fields
    found = repr(fields[field])[:80] if field in fields else f"no such field among {sorted(fields)}"
    return RewardResult(value=None, error=f"task {task.id!r}: field {field!r} must contain {wanted}; found {found}")
