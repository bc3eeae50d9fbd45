"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import RewardSpec

HERE = "rl_plugin_final_answer"

rlcore_specs = [
    RewardSpec(
        id="final-answer",
        target=f"{HERE}.reward:FinalAnswer",
        config=f"{HERE}.reward:FinalAnswerConfig",
        summary="1 for the right answer after ####, and a little for a wrong one.",
    )
]
