"""Plugin registrations of rlcore-trainer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import AlgorithmSpec, StrategySpec, TrainerSpec

if TYPE_CHECKING:
    import pluggy

ADVANTAGES = "rlcore_trainer.algorithms.advantages"
LOSSES = "rlcore_trainer.algorithms.losses"


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Add the hook specifications of this package."""
    from rlcore_trainer import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@hookimpl
def rlcore_trainers() -> Iterable[TrainerSpec]:
    """Register the policy-gradient and supervised trainers."""
    yield TrainerSpec(
        id="policy-gradient",
        target="rlcore_trainer.training.policy_gradient:PolicyGradientTrainer",
        config="rlcore_trainer.config:PolicyGradientConfig",
        summary="Reinforcement learning with policy gradients.",
        check="rlcore_trainer.training.conflicts:check",
        memory="rlcore_trainer.training.memory:memory",
        quantizes=True,
        tables=(
            ("algorithm", "rlcore_trainer.algorithms.config:AlgorithmConfig"),
            ("warmup", "rlcore_trainer.config:WarmupConfig"),
            ("curriculum", "rlcore_trainer.config:CurriculumConfig"),
            ("critic", "rlcore_trainer.optim.critic_config:CriticConfig"),
            ("lora", "rlcore_models.lora_config:LoraTable"),
        ),
    )
    yield TrainerSpec(
        id="sft",
        target="rlcore_trainer.training.supervised:SupervisedTrainer",
        config="rlcore_trainer.training.supervised_config:SupervisedConfig",
        summary="Supervised fine-tuning on conversations; needs no environment.",
        needs_environment=False,
        check="rlcore_trainer.training.supervised_check:check",
        memory="rlcore_trainer.training.memory:memory",
        quantizes=True,
        tables=(("lora", "rlcore_models.lora_config:LoraTable"),),
    )


@hookimpl
def rlcore_algorithms() -> Iterable[AlgorithmSpec]:
    """Register advantages and losses; each target class declares the inputs that it needs."""
    yield AlgorithmSpec(
        id="grpo",
        part="advantage",
        target=f"{ADVANTAGES}.grpo:Grpo",
        config=f"{ADVANTAGES}.grpo:Grpo.Config",
        summary="Reward minus the group mean, divided by the group's standard deviation.",
    )
    yield AlgorithmSpec(
        id="grpo-turn",
        part="advantage",
        target=f"{ADVANTAGES}.grpo_turn:GrpoTurn",
        config=f"{ADVANTAGES}.grpo_turn:GrpoTurn.Config",
        summary="Turn rewards, normalised by the mean and standard deviation over all turns of the group.",
    )
    yield AlgorithmSpec(
        id="dr-grpo",
        part="advantage",
        target=f"{ADVANTAGES}.dr_grpo:DrGrpo",
        summary="Reward minus the group mean.",
    )
    yield AlgorithmSpec(
        id="rloo",
        part="advantage",
        target=f"{ADVANTAGES}.rloo:Rloo",
        summary="Reward minus the mean of the other trajectories in the group.",
    )
    yield AlgorithmSpec(
        id="opo",
        part="advantage",
        target=f"{ADVANTAGES}.opo:Opo",
        summary="Reward minus the length-weighted group mean.",
    )
    yield AlgorithmSpec(
        id="pass-at-k",
        part="advantage",
        target=f"{ADVANTAGES}.pass_at_k:PassAtK",
        config=f"{ADVANTAGES}.pass_at_k:PassAtK.Config",
        summary="Best reward of a group minus the second best.",
    )
    yield AlgorithmSpec(
        id="reinforce-plus-plus",
        part="advantage",
        target=f"{ADVANTAGES}.reinforce_plus_plus:ReinforcePlusPlus",
        config=f"{ADVANTAGES}.reinforce_plus_plus:ReinforcePlusPlus.Config",
        summary="Discounted returns, whitened over the rollout; needs no groups.",
    )
    yield AlgorithmSpec(
        id="reinforce-plus-plus-baseline",
        part="advantage",
        target=f"{ADVANTAGES}.reinforce_plus_plus_baseline:ReinforcePlusPlusBaseline",
        config=f"{ADVANTAGES}.reinforce_plus_plus_baseline:ReinforcePlusPlusBaseline.Config",
        summary="Reward minus the group mean, whitened over the rollout.",
    )
    yield AlgorithmSpec(
        id="remax",
        part="advantage",
        target=f"{ADVANTAGES}.remax:Remax",
        summary="Return minus the reward of the greedy response; needs no groups.",
    )
    yield AlgorithmSpec(
        id="gae",
        part="advantage",
        target=f"{ADVANTAGES}.gae:Gae",
        config=f"{ADVANTAGES}.gae:Gae.Config",
        summary="Generalised advantage estimation with a critic; needs no groups.",
    )
    yield AlgorithmSpec(
        id="clip",
        part="loss",
        target=f"{LOSSES}.clip:Clip",
        config=f"{LOSSES}.clip:Clip.Config",
        summary="PPO's clipped surrogate with per-token ratios.",
    )
    yield AlgorithmSpec(
        id="gspo",
        part="loss",
        target=f"{LOSSES}.gspo:Gspo",
        config=f"{LOSSES}.gspo:Gspo.Config",
        summary="Clipped surrogate with one ratio per trajectory.",
    )
    yield AlgorithmSpec(
        id="gspo-token",
        part="loss",
        target=f"{LOSSES}.gspo_token:GspoToken",
        config=f"{LOSSES}.gspo_token:GspoToken.Config",
        summary="GSPO with per-token advantages.",
    )
    yield AlgorithmSpec(
        id="cispo",
        part="loss",
        target=f"{LOSSES}.cispo:Cispo",
        config=f"{LOSSES}.cispo:Cispo.Config",
        summary="Clips the importance weight of each token and keeps its gradient.",
    )
    yield AlgorithmSpec(
        id="sapo",
        part="loss",
        target=f"{LOSSES}.sapo:Sapo",
        config=f"{LOSSES}.sapo:Sapo.Config",
        summary="Replaces the hard clip with a soft gate.",
    )
    yield AlgorithmSpec(
        id="geo-mean",
        part="loss",
        target=f"{LOSSES}.geo_mean:GeoMean",
        config=f"{LOSSES}.geo_mean:GeoMean.Config",
        summary="Geometric mean of a trajectory's clipped token ratios.",
    )
    yield AlgorithmSpec(
        id="gpg",
        part="loss",
        target=f"{LOSSES}.gpg:Gpg",
        summary="The policy gradient without ratios or clipping.",
    )


@hookimpl
def rlcore_strategies() -> Iterable[StrategySpec]:
    """Register the strategies that distribute training over devices."""
    yield StrategySpec(
        id="single",
        target="rlcore_trainer.distributed.strategies.single:SingleProcess",
        config="rlcore_trainer.distributed.config:SingleProcessConfig",
        summary="One process, one device.",
        check="rlcore_trainer.distributed.launch:check_device",
    )
    yield StrategySpec(
        id="ddp",
        target="rlcore_trainer.distributed.strategies.data_parallel:DataParallel",
        config="rlcore_trainer.distributed.config:DataParallelConfig",
        summary="Data parallelism over processes: strategy.processes=N, torchrun or accelerate launch.",
        launch="rlcore_trainer.distributed.launch:launch",
        check="rlcore_trainer.distributed.launch:check",
    )
