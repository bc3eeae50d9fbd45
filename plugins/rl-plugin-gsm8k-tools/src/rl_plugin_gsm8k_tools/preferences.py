"""The dataset ``gsm8k-preferences``: generated problems with a right and a wrong calculation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlcore.types import Message, Preference, derive_seed

from rl_plugin_gsm8k_tools import problems
from rl_plugin_gsm8k_tools.calculator import calculator
from rl_plugin_gsm8k_tools.config import DataConfig, PreferenceDataConfig
from rl_plugin_gsm8k_tools.dataset import Gsm8kData


class Gsm8kPreferences(Gsm8kData):
    """The tasks of the generated problems, and for each of them a pair of calculator calls with their answers.

    The wrong call is that of most demonstrations, or uses another operation.
    """

    def __init__(self, config: PreferenceDataConfig) -> None:
        super().__init__(DataConfig())
        self._pairs = config

    def preferences(self, split: str) -> Sequence[Preference]:
        """The pairs of a split, the same on every machine."""
        config, rng = self._pairs, random.Random(derive_seed("preferences", split))
        count = config.pairs if split == "train" else problems.COUNTS["evaluation"]
        return [_preference(split, rng, config.swapped if split == "train" else 0.0) for _ in range(count)]


def _preference(split: str, rng: random.Random, swapped: float) -> Preference:
    problem = problems.make(split, rng)
    others = [f"{problem.first}{sign}{problem.second}" for sign in problems.OPERATIONS if sign != problem.operation]
    wrong = problem.wrong_expression if rng.random() < 0.5 else rng.choice(others)
    sides = [problem.expression, wrong]
    if rng.random() < swapped:
        sides.reverse()
    chosen, rejected = (problems.solution(expression) for expression in sides)
    return Preference(
        prompt=(Message(role="user", content=problem.question),),
        chosen=chosen,
        rejected=rejected,
        tools=(calculator.schema,),
    )
