"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import ModelBuilderSpec
from rlcore.specs import ActionModelSpec

HERE = "rl_plugin_small_network"

rlcore_specs = [
    # A folder whose config.json says so is read as this policy: rlcore run model.path=FOLDER.
    ActionModelSpec(
        id="small-network",
        target=f"{HERE}.policy:read",
        marks=frozenset({("model_type", "small-network")}),
        summary="A small network that sees the state.",
    ),
    # Writes such a folder for the environment of the run: rlcore run model.path=builtin:small-network.
    ModelBuilderSpec(
        id="small-network",
        target=f"{HERE}.policy:build",
        config=f"{HERE}.config:SmallNetworkConfig",
        summary="A small network that sees the state.",
    ),
]
