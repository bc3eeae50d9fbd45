"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import DatasetSpec

HERE = "rl_plugin_larger_number"

rlcore_specs = [
    DatasetSpec(
        id="larger-number",
        target=f"{HERE}.dataset:Pairs",
        config=f"{HERE}.dataset:PairsConfig",
        summary="Which of two numbers is larger?",
    )
]
