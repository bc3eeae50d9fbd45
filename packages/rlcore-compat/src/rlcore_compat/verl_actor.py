"""Translation of verl's keys for the updates: optimiser, mini-batches, memory and sharding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlcore_compat.verl_algorithm import ACTOR
from rlcore_compat.verl_model import dtype
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, never, nothing

REFERENCE = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
_BATCH = "affects memory only; trainer.max_tokens_per_batch sets the batch size in memory"
_SHARDING = "affects memory only; each process holds all weights and whole sequences"
_KERNELS = "affects speed and memory only; the trainer selects the kernels"
_CRITIC = "the critic uses the mini-batches of the policy"
_SCHEDULES = ("constant", "cosine")
_MEGATRON = "Megatron is not supported; strategy.id distributes updates over processes that hold all weights"
_PROFILER = "profiles are not recorded: give False"


def _updates(value: Any, words: Words) -> int:
    """Optimiser steps per rollout. verl multiplies the mini-batch size by ``rollout.n``, but not by ``num_chains``."""
    siblings = words.get(f"{ROLLOUT}.n", 1)
    rows = (words.get("data.train_batch_size"), words.get("agent.num_chains", siblings), value, siblings)
    if not all(isinstance(number, int) and number > 0 for number in rows):
        raise Refused("depends on data.train_batch_size: give both, as positive integers")
    tasks, group_size, mini_batch, siblings = rows
    updates, rest = divmod(tasks * group_size, mini_batch * siblings)
    if rest or not updates:
        raise Refused(
            f"{tasks * group_size} trajectories per step are not divisible into mini-batches of {mini_batch * siblings}"
        )
    return int(updates)


def _batch_tokens(value: Any, words: Words) -> Any:
    return value if words.get(f"{ACTOR}.use_dynamic_bsz") is True else Several({})


def _warmup_steps(value: Any, words: Words) -> Any:
    return Several({}) if isinstance(value, int) and value < 0 else value


def _warmup_ratio(value: Any, words: Words) -> Any:
    given = words.get(f"{ACTOR}.optim.lr_warmup_steps", -1)
    return Several({}) if isinstance(given, int) and given >= 0 else value


def _schedule(value: Any, words: Words) -> Any:
    if value is None:
        return Several({})
    if value not in _SCHEDULES:
        raise Refused(f"must be one of {', '.join(_SCHEDULES)}")
    return value


def _strategy(value: Any, words: Words) -> None:
    if value == "megatron":
        raise Refused(_MEGATRON)
    if value not in ("fsdp", "fsdp2"):
        name = {"veomni": "VeOmni"}.get(str(value), value)
        reason = f"{name} is not supported; strategy.id distributes updates over processes that hold all weights"
        raise Refused(reason)


def _each(parts: Iterable[str], names: Iterable[str], meaning: Meaning) -> dict[str, Meaning]:
    return {f"{part}.{name}": meaning for name in names for part in parts}


_ALL = (ACTOR, REFERENCE, "critic")
_STRATEGY = Meaning(
    ours=None, why="affects memory only; strategy.id distributes updates over processes", read=_strategy
)
_VISION_TOWER = Meaning(ours="model.vision_tower", read=lambda value, words: "frozen" if value else "trained")
_UPDATES: Mapping[str, Meaning] = {
    f"{ACTOR}.optim.lr": Meaning(ours="trainer.learning_rate"),
    f"{ACTOR}.optim.weight_decay": Meaning(ours="trainer.weight_decay"),
    f"{ACTOR}.optim.betas": Meaning(ours="trainer.betas"),
    f"{ACTOR}.optim.lr_warmup_steps": Meaning(
        ours="trainer.lr_warmup_steps", why="-1 has no effect", read=_warmup_steps
    ),
    f"{ACTOR}.optim.lr_warmup_steps_ratio": Meaning(
        ours="trainer.lr_warmup_ratio", why="only without lr_warmup_steps", read=_warmup_ratio
    ),
    f"{ACTOR}.optim.lr_scheduler_type": Meaning(ours="trainer.schedule", read=_schedule),
    f"{ACTOR}.optim.warmup_style": Meaning(ours="trainer.schedule", read=_schedule),
    f"{ACTOR}.optim.override_optimizer_config.*": never("AdamW has no other options than trainer.betas"),
    f"{ACTOR}.optim.min_lr_ratio": nothing(
        "the schedule ends at zero", only=(0, 0.0, None), otherwise="the schedule ends at zero: give 0"
    ),
    f"{ACTOR}.optim.optimizer": nothing("the optimiser is AdamW", only=("AdamW",), otherwise="the optimiser is AdamW"),
    f"{ACTOR}.optim.optimizer_impl": nothing("the optimiser is that of torch"),
    f"{ACTOR}.optim.total_training_steps": nothing("trainer.steps sets the length of the schedule"),
    f"{ACTOR}.optim.clip_grad": Meaning(ours="trainer.max_gradient_norm"),
    f"{ACTOR}.grad_clip": Meaning(ours="trainer.max_gradient_norm"),
    f"{ACTOR}.ppo_epochs": Meaning(ours="trainer.epochs", why="passes over each rollout"),
    f"{ACTOR}.ppo_mini_batch_size": Meaning(
        ours="trainer.updates_per_rollout",
        why="train_batch_size x num_chains / ppo_mini_batch_size; in trajectories, or in prompts with rollout.n",
        read=_updates,
    ),
    f"{ACTOR}.shuffle": nothing("mini-batches are always shuffled"),
    f"{ACTOR}.data_loader_seed": nothing("seed sets the order of the mini-batches"),
    f"{ACTOR}.ppo_micro_batch_size": nothing(_BATCH),
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": nothing(_BATCH),
    f"{ACTOR}.use_dynamic_bsz": nothing("batches are always packed by their number of tokens"),
    f"{ACTOR}.ppo_max_token_len_per_gpu": Meaning(
        ours="trainer.max_tokens_per_batch", why="only with use_dynamic_bsz=True", read=_batch_tokens
    ),
    f"{ACTOR}.fsdp_config.model_dtype": Meaning(ours="model.dtype", read=dtype),
    f"{ACTOR}.interaction_budget": nothing("environment.max_turns limits the turns"),
    f"{ACTOR}.overbudget_masking": nothing(
        "False has no effect",
        only=(False,),
        otherwise='algorithm.filter.exclude=["max_turns"] leaves out trajectories at the limit of turns',
    ),
    f"{ACTOR}.use_prefix_grouper": nothing("the prompt of a group is always computed once for all of its responses"),
    f"{ACTOR}.calculate_sum_pi_squared": nothing("only with adv_estimator=optimal_token_baseline"),
    f"{ACTOR}.freeze_vision_tower": _VISION_TOWER,
    **_each((ACTOR, REFERENCE), ("fsdp_config.freeze_vision_tower",), _VISION_TOWER),
    f"{ACTOR}.checkpoint.*": nothing("checkpoints contain all that --resume needs; rlcore merge writes a model folder"),
}
_BOTH = ("actor_rollout_ref.actor", "actor_rollout_ref.ref")
_COMPUTING: Mapping[str, Meaning] = {
    f"{REFERENCE}.fsdp_config.model_dtype": nothing("model.dtype sets the data type of all weights"),
    **_each((ROLLOUT, REFERENCE), ("log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu"), nothing(_BATCH)),
    **_each((ROLLOUT, REFERENCE), ("log_prob_use_dynamic_bsz", "log_prob_max_token_len_per_gpu"), nothing(_BATCH)),
    **_each(_ALL, ("strategy",), _STRATEGY),
    **_each(_ALL, ("ulysses_sequence_parallel_size",), nothing(_SHARDING)),
    **_each(_BOTH, ("use_torch_compile",), nothing("affects speed only; the trainer does not compile the model")),
    **_each(_BOTH, ("entropy_from_logits_with_chunking", "entropy_checkpointing"), nothing(_KERNELS)),
    **_each(_BOTH, ("fsdp_config.*",), nothing(_SHARDING)),
    **_each(("critic.model",), ("fsdp_config.*",), nothing(_SHARDING)),
    "critic.enable": nothing("critic.model enables the critic; adv_estimator=gae sets it"),
    "critic.fsdp.*": nothing(_SHARDING),
    "critic.model.enable_gradient_checkpointing": nothing(
        "trainer.gradient_checkpointing sets it for the policy and the critic"
    ),
    "critic.model.use_remove_padding": nothing("batches are always packed, without padding"),
    "critic.optim.lr_warmup_steps_ratio": nothing(
        "the learning rate of the critic is constant", only=(0, 0.0), otherwise="its learning rate is constant: give 0"
    ),
    "critic.optim.weight_decay": nothing("trainer.weight_decay sets it for the policy and the critic"),
    "critic.grad_clip": nothing("trainer.max_gradient_norm sets it for the policy and the critic"),
    "critic.ppo_mini_batch_size": nothing(_CRITIC),
    "critic.ppo_epochs": nothing(_CRITIC),
    "critic.use_dynamic_bsz": nothing(_BATCH),
    "critic.ppo_micro_batch_size": nothing(_BATCH),
    "critic.ppo_micro_batch_size_per_gpu": nothing(_BATCH),
    "critic.ppo_max_token_len_per_gpu": nothing(_BATCH),
    "critic.forward_micro_batch_size_per_gpu": nothing(_BATCH),
    "critic.forward_max_token_len_per_gpu": nothing(_BATCH),
}
_NOT_SUPPORTED: Mapping[str, Meaning] = {
    **_each(_ALL, ("megatron.*", "engine.*"), never(_MEGATRON)),
    f"{ACTOR}.optim.lr_decay_style": never(_MEGATRON),
    f"{ACTOR}.optim.lr_decay_steps": never(_MEGATRON),
    f"{ACTOR}.optim.min_lr": nothing(
        "the schedule ends at zero", only=(0, 0.0), otherwise="the schedule ends at zero: give 0"
    ),
    **_each(_ALL, ("veomni.*",), never("VeOmni is not supported; strategy.id distributes updates over processes")),
    **_each((*_ALL, ROLLOUT), ("profiler.enable",), nothing(_PROFILER, only=(False,), otherwise=_PROFILER)),
    **_each((*_ALL, ROLLOUT), ("profiler.*",), nothing("only with profiler.enable=True")),
}

THE_UPDATES: Mapping[str, Meaning] = {**_UPDATES, **_COMPUTING, **_NOT_SUPPORTED}
"""By key of verl."""
