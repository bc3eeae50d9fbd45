"""Advantage estimators as pure functions: how much better than expected a trajectory did, or a token of it.

A function's positional parameters name what it is given of a rollout, its keyword-only ones keys of ``[algorithm]``:

- ``rewards_N`` the score of each trajectory; ``groups_N`` the task that it belongs to; ``lengths_N`` how many tokens
  the policy wrote; ``baselines_N`` the reward of the greedy answer to each one's prompt
- ``rewards_NT`` the score by token (an outcome stands on the last written one); ``mask_NT`` true where the policy
  wrote; ``values_NT`` the critic's value of the state before each token

It returns the advantages, ``[N]`` or ``[N, T]`` and 0 where the mask is false, and metrics.
"""

from __future__ import annotations

from rlcore_trainer.advantages.groups import EPSILON, dr_grpo, grpo, opo, pass_at_k, rloo
from rlcore_trainer.advantages.tokens import (
    gae,
    lambda_returns,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    remax,
)

__all__ = [
    "EPSILON",
    "dr_grpo",
    "gae",
    "grpo",
    "lambda_returns",
    "opo",
    "pass_at_k",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "rloo",
]
