"""The components of rlcore-compat."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore.hookspecs import hookimpl
from rlcore.specs import ConfigAdapterSpec


@hookimpl
def rlcore_config_adapters() -> Iterable[ConfigAdapterSpec]:
    """The config adapters of verl, TRL and accelerate."""
    yield ConfigAdapterSpec(
        id="verl",
        target="rlcore_compat.verl:VERL",
        overrides=True,
        summary="Overrides of verl, and of its fork for agents.",
    )
    yield ConfigAdapterSpec(
        id="trl-grpo",
        target="rlcore_compat.trl:GRPO_FILE",
        files=(
            ("model_name_or_path",),
            ("scale_rewards",),
            ("importance_sampling_level",),
            ("loss_type", "num_generations"),
        ),
        summary="Files of trl grpo --config.",
    )
    yield ConfigAdapterSpec(
        id="accelerate",
        target="rlcore_compat.accelerate:ACCELERATE",
        files=(("distributed_type",),),
        summary="Files of accelerate config.",
    )
