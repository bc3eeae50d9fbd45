"""What is sampled: how many tokens, turns and seconds of tools a trajectory has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import NormalDist, fmean

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Distribution:
    """Positive numbers by their quantiles: a sorted sample, or log-normal up to a limit."""

    sample: Sequence[float] = ()
    location: float = 0.0
    spread: float = 0.0
    limit: float = math.inf

    @classmethod
    def log_normal(cls, mean: float, spread: float, limit: float = math.inf) -> Distribution:
        """Numbers with this mean after the limit, and this standard deviation of their logarithm before it."""
        if mean <= 0:
            return cls(sample=(0.0,))
        if not spread or mean >= limit:
            return cls(sample=(min(mean, limit),))
        if limit == math.inf:
            return cls(location=math.log(mean) - spread**2 / 2, spread=spread)
        low, high = math.log(mean) - spread**2, math.log(limit) + 4 * spread
        for _ in range(60):
            middle = (low + high) / 2
            short = cls((), middle, spread, limit).mean < mean
            low, high = (middle, high) if short else (low, middle)
        return cls((), low, spread, limit)

    def quantile(self, share: float) -> float:
        """The number below which this share of the numbers is."""
        if self.sample:
            return self.sample[min(len(self.sample) - 1, int(share * len(self.sample)))]
        share = min(max(share, 1e-12), 1 - 1e-12)
        return min(self.limit, math.exp(self.location + self.spread * _NORMAL.inv_cdf(share)))

    @property
    def mean(self) -> float:
        """The mean."""
        if self.sample:
            return fmean(self.sample)
        if self.limit == math.inf:
            return math.exp(self.location + self.spread**2 / 2)
        # E[min(X, c)] = exp(m + s²/2) Φ(z - s) + c (1 - Φ(z)), with z = (ln c - m) / s
        z = (math.log(self.limit) - self.location) / self.spread
        below = math.exp(self.location + self.spread**2 / 2) * _NORMAL.cdf(z - self.spread)
        return below + self.limit * (1 - _NORMAL.cdf(z))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """The trajectories of a run, and what of it is assumed."""

    tokens: Distribution
    """Sampled tokens."""
    prompt: float
    """Tokens of a prompt; siblings share it."""
    turns: int = 1
    observation: float = 0.0
    """Tokens of an observation between two turns."""
    tool_s: Distribution = field(default_factory=lambda: Distribution((0.0,)))
    """Seconds of tools and environment after a turn."""
    start_s: Distribution = field(default_factory=lambda: Distribution((0.0,)))
    """Seconds before the first turn."""
    trained: float = 1.0
    """Share of the sampled tokens that updates compute: groups with equal rewards are left out."""
    source: str = ""
    """Where the numbers come from."""

    @property
    def mean_length(self) -> float:
        """The mean length at the end."""
        return self.prompt + self.tokens.mean + (self.turns - 1) * self.observation

    def draw(self, random: Random, population: int) -> float:
        """The tokens of a trajectory; with a population above 1, those of the longest one of so many."""
        return max(1.0, self.tokens.quantile(random.random() ** (1 / population)))
