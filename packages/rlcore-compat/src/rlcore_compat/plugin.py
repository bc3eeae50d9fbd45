"""The components of rlcore-compat."""

from __future__ import annotations

from rlcore.specs import ConfigAdapterSpec, DatasetSpec, EnvironmentSpec, RewardSpec

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
    EnvironmentSpec(
        id="trl-environment",
        target="rlcore_compat.trl_environment:TrlEnvironment",
        config="rlcore_compat.trl_config:TrlEnvironmentConfig",
        summary="A class written for TRL's environment_factory, whose methods are tools.",
        blocking=True,
        check="rlcore_compat.trl_check:check",
    ),
    DatasetSpec(
        id="trl-environment",
        target="rlcore_compat.trl_tasks:TrlTasks",
        config="rlcore_compat.trl_config:TrlDataConfig",
        summary="Rows with the columns of reset, or tasks that the class makes itself.",
    ),
    RewardSpec(
        id="trl-environment",
        target="rlcore_compat.trl_environment:trl_environment_reward",
        summary="get_reward of the class, and reward functions of TRL.",
        minimum=-float("inf"),
        maximum=float("inf"),
        rewards_silence=True,
    ),
]
