"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import ToolSpec

HERE = "rl_plugin_whole_numbers"

rlcore_specs = [
    ToolSpec(id="whole-numbers", target=f"{HERE}.tool:calculator", summary="A calculator of whole numbers."),
]
