"""The hook implementations of this plugin."""

from __future__ import annotations

import math

from rlcore.specs import RewardSpec

_PACKAGE = "rl_plugin_reward_model"

rlcore_specs = [
    RewardSpec(
        id="reward-model",
        target=f"{_PACKAGE}.reward:RewardModel",
        config=f"{_PACKAGE}.config:RewardModelConfig",
        check=f"{_PACKAGE}.check:check",
        minimum=-math.inf,
        maximum=math.inf,
        rewards_silence=True,
        summary="The score of a reward model, computed in another process.",
    ),
]
