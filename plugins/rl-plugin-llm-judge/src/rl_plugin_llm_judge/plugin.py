"""The hook implementations of this plugin."""

from __future__ import annotations

from rlcore.specs import RewardSpec

_PACKAGE = "rl_plugin_llm_judge"

rlcore_specs = [
    RewardSpec(
        id="llm-judge",
        target=f"{_PACKAGE}.judge:Judge",
        config=f"{_PACKAGE}.config:JudgeConfig",
        probe=f"{_PACKAGE}.probe:probe",
        summary="Whether the answer means the same as the expected one, by the verdict of a language model.",
    ),
]
