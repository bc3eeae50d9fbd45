"""Prompts, reward and sizes of the ``grpo-step`` benchmark, for both sides. Imports nothing heavy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a step."""

    tasks: int
    group_size: int
    new_tokens: int
    prompt_words: int

    @property
    def rollouts(self) -> int:
        """Rollouts per step."""
        return self.tasks * self.group_size


SIZES = {
    "full": Size(tasks=8, group_size=8, new_tokens=128, prompt_words=80),
    "model": Size(tasks=4, group_size=8, new_tokens=64, prompt_words=24),
    "smoke": Size(tasks=2, group_size=4, new_tokens=4, prompt_words=8),
}
LEARNING_RATE, KL_COEFFICIENT = 1e-6, 0.01
BUILDER = {"layers": 5, "width": 256, "heads": 8, "feed_forward": 768, "vocabulary": 4096}
SYLLABLES = [start + vowel for start in "bcdfghjklmnprstvwz" for vowel in "aeiou"]


def words(seed: int, count: int) -> str:
    """Words of one to three syllables."""
    generator = random.Random(seed)
    return " ".join("".join(generator.choices(SYLLABLES, k=generator.randint(1, 3))) for _ in range(count))


def corpus() -> list[str]:
    """Training texts for the tokenizer."""
    return [words(1000 + line, 400) for line in range(100)]


def prompts(count: int, size: Size) -> list[str]:
    """``count`` user messages, of about 150 tokens in the full size."""
    return [words(index, size.prompt_words) for index in range(count)]


def score(token_ids: Sequence[int]) -> float:
    """The share of even token ids. It is fast, deterministic and different for almost every completion."""
    return sum(1 for token in token_ids if token % 2 == 0) / max(1, len(token_ids))
