"""Policies of LeRobot, registered with a hook of rlcore-control."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import ActionModelSpec


@hookimpl
def rlcore_action_models() -> Iterable[ActionModelSpec]:
    """Register ACT, pi0 and SmolVLA."""
    yield ActionModelSpec(
        id="act",
        target="rl_plugin_lerobot.act.policy:read_act",
        marks=frozenset({("type", "act")}),
        summary="ACT of LeRobot.",
    )
    yield ActionModelSpec(
        id="pi0",
        target="rl_plugin_lerobot.pi0.policy:read_pi0",
        marks=frozenset({("type", "pi0"), ("model_type", "pi0")}),
        summary="pi0 of LeRobot or of transformers.",
    )
    yield ActionModelSpec(
        id="smolvla",
        target="rl_plugin_lerobot.smolvla.policy:read_smolvla",
        marks=frozenset({("type", "smolvla")}),
        summary="SmolVLA of LeRobot.",
    )
