"""What this package registers: ids and import paths. Every ``rlcore`` command imports this module, so keep it light."""

from __future__ import annotations

from rlcore import EngineSpec

HERE = "rl_plugin_plain_sampling"

rlcore_specs = [
    EngineSpec(
        id="plain-sampling",
        target=f"{HERE}.engine:PlainSampling",
        config=f"{HERE}.config:PlainSamplingConfig",
        summary="Samples with transformers, one prompt at a time.",
        unserved=(("lora.rank", "it copies whole weights"), ("lora.adapter", "it copies whole weights")),
    )
]
