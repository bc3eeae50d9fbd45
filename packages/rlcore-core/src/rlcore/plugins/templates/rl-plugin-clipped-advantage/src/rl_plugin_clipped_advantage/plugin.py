"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import AlgorithmSpec

HERE = "rl_plugin_clipped_advantage"

rlcore_specs = [
    AlgorithmSpec(
        id="clipped-advantage",
        part="advantage",  # or "loss": see rlcore_trainer.algorithms
        target=f"{HERE}.advantage:clipped",
        summary="Reward minus the group mean, clipped.",
    )
]
