"""The components of rlcore-compat."""

from __future__ import annotations

from rlcore.specs import ConfigAdapterSpec

rlcore_specs = [
    ConfigAdapterSpec(
        id="verl",
        target="rlcore_compat.verl:OVERRIDES",
        overrides=True,
        summary="Overrides of verl's trainers, and of its fork for agents.",
    ),
    ConfigAdapterSpec(
        id="trl-grpo",
        target="rlcore_compat.trl:GRPO_FILE",
        files=(
            ("model_name_or_path",),
            ("scale_rewards",),
            ("importance_sampling_level",),
            ("loss_type", "num_generations"),
        ),
        summary="Files of trl grpo --config.",
    ),
    ConfigAdapterSpec(
        id="accelerate",
        target="rlcore_compat.accelerate:ACCELERATE",
        files=(("distributed_type",),),
        summary="Files of accelerate config.",
    ),
]
