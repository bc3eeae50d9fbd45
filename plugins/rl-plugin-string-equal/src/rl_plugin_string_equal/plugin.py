"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import RewardSpec

_REWARD = "rl_plugin_string_equal.reward:"
_CONFIG = "rl_plugin_string_equal.config:"

rlcore_specs = [
    RewardSpec(
        id="string-equal",
        target=_REWARD + "StringEqual",
        config=_CONFIG + "StringEqualConfig",
        summary="1 if the final response equals the expected answer, as text",
    ),
    RewardSpec(
        id="math-numeric-equal",
        target=_REWARD + "MathNumericEqual",
        config=_CONFIG + "MathNumericEqualConfig",
        summary="1 if the number in the final response equals the expected one exactly",
    ),
    RewardSpec(
        id="math-reward-string-equal",
        target=_REWARD + "MathRewardStringEqual",
        config=_CONFIG + "MathRewardStringEqualConfig",
        summary="AgentFly's math_reward_string_equal, including its known errors",
    ),
]
