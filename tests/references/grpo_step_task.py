"""The work of the ``grpo-step`` benchmark, the same for both sides: prompts, reward, sizes. Imports nothing heavy."""

from __future__ import annotations

import random
from collections.abc import Sequence

TASKS, GROUP_SIZE, NEW_TOKENS = 8, 8, 128
ROLLOUTS = TASKS * GROUP_SIZE
LEARNING_RATE, KL_COEFFICIENT = 1e-6, 0.01
BUILDER = {"layers": 5, "width": 256, "heads": 8, "feed_forward": 768, "vocabulary": 4096}
SYLLABLES = [start + vowel for start in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
PROMPT_WORDS = 80


def words(seed: int, count: int) -> str:
    """Words of one to three syllables."""
    generator = random.Random(seed)
    return " ".join("".join(generator.choices(SYLLABLES, k=generator.randint(1, 3))) for _ in range(count))


def corpus() -> list[str]:
    """What the tokenizer is trained on."""
    return [words(1000 + line, 400) for line in range(100)]


def prompts(count: int) -> list[str]:
    """``count`` user messages of about 150 tokens."""
    return [words(index, PROMPT_WORDS) for index in range(count)]


def score(token_ids: Sequence[int]) -> float:
    """The share of even token ids: quick, deterministic, and different for nearly every completion."""
    return sum(1 for token in token_ids if token % 2 == 0) / max(1, len(token_ids))
