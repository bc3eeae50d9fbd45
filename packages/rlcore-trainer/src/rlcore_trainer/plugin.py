"""Plugin registrations of rlcore-trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import AlgorithmSpec, CommandSpec, StrategySpec, TrainerSpec

if TYPE_CHECKING:
    import pluggy

ADVANTAGES = {
    "grpo": "Reward minus the group mean, divided by the group's standard deviation.",
    "grpo-turn": "Turn rewards, normalised by the mean and standard deviation over all turns of the group.",
    "dr-grpo": "Reward minus the group mean.",
    "rloo": "Reward minus the mean of the other trajectories in the group.",
    "opo": "Reward minus the length-weighted group mean.",
    "pass-at-k": "Best reward of a group minus the second best.",
    "max-rl": "Reward minus the group mean, divided by the group mean.",
    "gdpo": "Each reward normalised in its group, then their weighted sum over the rollout.",
    "optimal-token-baseline": "Return minus the baseline of least variance of its position; two more forward passes.",
    "reinforce-plus-plus": "Discounted returns, whitened over the rollout; needs no groups.",
    "reinforce-plus-plus-baseline": "Reward minus the group mean, whitened over the rollout.",
    "remax": "Return minus the reward of the greedy response; needs no groups.",
}
LOSSES = {
    "clip": "PPO's clipped surrogate with per-token ratios.",
    "gspo": "Clipped surrogate with one ratio per trajectory.",
    "gspo-token": "GSPO with per-token advantages.",
    "luspo": "GSPO with the loss of a trajectory multiplied by its length.",
    "vespo": "A smooth weight of each trajectory by the product of its ratios.",
    "cispo": "Clips the importance weight of each token and keeps its gradient.",
    "sapo": "Replaces the hard clip with a soft gate.",
    "geo-mean": "Geometric mean of a trajectory's clipped token ratios.",
    "gpg": "The policy gradient without ratios or clipping.",
    "dppo-tv": "The policy gradient without tokens whose probability has moved too far with their advantage.",
    "dppo-kl": "The same with a bound of the KL divergence.",
    "symmetric-tv": "The policy gradient without tokens whose probability has moved, and a penalty on log-ratios.",
    "clip-cov": "The clipped surrogate without some of the tokens that reduce the entropy most.",
    "kl-cov": "The policy gradient with a KL penalty on the tokens that reduce the entropy most.",
}

PREFERENCE_LOSSES = {
    "dpo": "Direct preference optimisation, with label smoothing as an option.",
    "robust-dpo": "DPO that corrects for a share of swapped labels.",
    "dpo-norm": "DPO with means over tokens instead of sums.",
    "ipo": "Identity preference optimisation: a squared distance from a margin.",
    "hinge": "A hinge on the margin between both answers.",
    "sppo": "Self-play preference optimisation: a squared distance from a target for each answer.",
    "apo-zero": "Anchored preferences, for chosen answers that are better than those of the policy.",
    "apo-down": "Anchored preferences, for chosen answers that are worse than those of the policy.",
    "simpo": "Means over tokens with a margin; needs no reference.",
    "orpo": "Odds ratio of both answers, with the likelihood of the chosen one; needs no reference.",
    "cpo": "DPO without a reference, with the likelihood of the chosen answer.",
}


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Add the hook specifications of this package."""
    from rlcore_trainer import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def _function(folder: str, id: str) -> str:
    name = id.replace("-", "_")
    return f"rlcore_trainer.algorithms.{folder}.{name}:{name}"


rlcore_specs = [
    TrainerSpec(
        id="policy-gradient",
        target="rlcore_trainer.controller.policy_gradient:PolicyGradientTrainer",
        config="rlcore_trainer.config:PolicyGradientConfig",
        summary="Reinforcement learning with policy gradients.",
        check="rlcore_trainer.checks.conflicts:check",
        memory="rlcore_trainer.checks.memory:memory",
        quantizes=True,
        shards=True,
        tables=(
            ("algorithm", "rlcore_trainer.algorithms.config:AlgorithmConfig"),
            ("warmup", "rlcore_trainer.config:WarmupConfig"),
            ("curriculum", "rlcore_trainer.config:CurriculumConfig"),
            ("critic", "rlcore_trainer.learner.critic_config:CriticConfig"),
            ("lora", "rlcore_models.lora_config:LoraTable"),
        ),
    ),
    TrainerSpec(
        id="sft",
        target="rlcore_trainer.supervised.trainer:SupervisedTrainer",
        config="rlcore_trainer.config:SupervisedConfig",
        summary="Supervised fine-tuning on conversations; needs no environment.",
        needs_environment=False,
        check="rlcore_trainer.supervised.check:check",
        memory="rlcore_trainer.checks.memory:memory",
        quantizes=True,
        shards=True,
        tables=(("lora", "rlcore_models.lora_config:LoraTable"),),
    ),
    TrainerSpec(
        id="preference",
        target="rlcore_trainer.preferences.trainer:PreferenceTrainer",
        config="rlcore_trainer.config:PreferenceTrainerConfig",
        summary="Preference training on pairs of answers, such as DPO; needs no environment.",
        needs_environment=False,
        check="rlcore_trainer.preferences.check:check",
        memory="rlcore_trainer.checks.memory:memory",
        quantizes=True,
        shards=True,
        tables=(
            ("preference", "rlcore_trainer.algorithms.preferences.config:PreferenceConfig"),
            ("lora", "rlcore_models.lora_config:LoraTable"),
        ),
    ),
    TrainerSpec(
        id="reward-model",
        target="rlcore_trainer.preferences.trainer:RewardModelTrainer",
        config="rlcore_trainer.config:RewardModelTrainerConfig",
        summary="A reward model that learns to score answers from pairs; needs no environment.",
        needs_environment=False,
        check="rlcore_trainer.preferences.check:check",
        memory="rlcore_trainer.checks.memory:memory",
        shards=True,
    ),
    CommandSpec(
        id="plan",
        target="rlcore_trainer.planning.cli:plan",
        summary="Simulate a run on a cluster, before renting it.",
    ),
    StrategySpec(
        id="single",
        target="rlcore_trainer.distributed.strategies.single:SingleProcess",
        config="rlcore_trainer.distributed.config:SingleProcessConfig",
        summary="One process, one device.",
        check="rlcore_trainer.distributed.launch:check_device",
    ),
    StrategySpec(
        id="fsdp2",
        target="rlcore_trainer.distributed.strategies.fully_sharded:FullySharded",
        config="rlcore_trainer.distributed.config:FullyShardedConfig",
        summary="Several processes, each with a part of the model (FSDP2).",
        check="rlcore_trainer.distributed.launch:check_sharded",
        launch="rlcore_trainer.distributed.launch:launch",
    ),
    StrategySpec(
        id="ddp",
        target="rlcore_trainer.distributed.strategies.data_parallel:DataParallel",
        config="rlcore_trainer.distributed.config:DataParallelConfig",
        summary="Data parallelism over processes: strategy.processes=N, torchrun or accelerate launch.",
        launch="rlcore_trainer.distributed.launch:launch",
        check="rlcore_trainer.distributed.launch:check",
    ),
    AlgorithmSpec(
        id="none",
        part="advantage",
        target=_function("advantages", "none"),
        summary="Zero: rewards are measured, but not trained on. For distillation; needs no groups and no rewards.",
        needs_rewards=False,
    ),
    *(
        AlgorithmSpec(id=id, part="advantage", target=_function("advantages", id), summary=summary)
        for id, summary in ADVANTAGES.items()
    ),
    *(
        AlgorithmSpec(id=id, part="loss", target=_function("losses", id), summary=summary)
        for id, summary in LOSSES.items()
    ),
    *(
        AlgorithmSpec(id=id, part="preference_loss", target=_function("preferences", id), summary=summary)
        for id, summary in PREFERENCE_LOSSES.items()
    ),
    AlgorithmSpec(
        id="gae",
        part="advantage",
        target="rlcore_trainer.algorithms.advantages.gae:Gae",
        summary="Generalised advantage estimation with a critic; needs no groups.",
    ),
]
