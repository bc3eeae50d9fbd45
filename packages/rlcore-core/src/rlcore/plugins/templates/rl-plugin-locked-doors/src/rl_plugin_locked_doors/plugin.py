"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import DatasetSpec, EnvironmentSpec, RewardSpec

HERE = "rl_plugin_locked_doors"

rlcore_specs = [
    EnvironmentSpec(id="locked-doors", target=f"{HERE}.environment:Doors", summary="A corridor of doors."),
    DatasetSpec(
        id="locked-doors",
        target=f"{HERE}.corridors:Corridors",
        config=f"{HERE}.corridors:CorridorsConfig",
        summary="Corridors, a third of them held out.",
    ),
    RewardSpec(id="locked-doors-opened", target=f"{HERE}.environment:opened", summary="The share of opened doors."),
]
