"""Policies of LeRobot, registered with a hook of rlcore-control."""

from __future__ import annotations

from rlcore.specs import ActionModelSpec

rlcore_specs = [
    ActionModelSpec(
        id="act",
        target="rl_plugin_lerobot.act.policy:read_act",
        marks=frozenset({("type", "act")}),
        summary="ACT of LeRobot.",
    ),
    ActionModelSpec(
        id="pi0",
        target="rl_plugin_lerobot.pi0.policy:read_pi0",
        marks=frozenset({("type", "pi0"), ("model_type", "pi0")}),
        summary="pi0 of LeRobot or of transformers.",
    ),
    ActionModelSpec(
        id="smolvla",
        target="rl_plugin_lerobot.smolvla.policy:read_smolvla",
        marks=frozenset({("type", "smolvla")}),
        summary="SmolVLA of LeRobot.",
    ),
]
