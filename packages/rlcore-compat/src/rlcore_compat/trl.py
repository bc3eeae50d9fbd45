"""Translation of the keys of TRL's ``GRPOConfig``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcore_compat.trl_batches import as_steps, generation, sizes, steps, steps_of_epoch, whole
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, never, nothing

AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
LOSSES = ("cispo", "sapo")
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant"}
_MEMORY = "affects memory only; trainer.max_tokens_per_batch sets the batch size in memory"
_LOADING = "tasks are loaded once, at the start of the run"
_SHOWN = "every step is logged, and every trajectory is stored"
_SIZES = "completions per generation / num_generations"
_UPDATES = "optimiser steps per pass over a generation"
_PLACE = "logs are in the run directory, which runs and name determine"


def one_of(ours: str, names: Mapping[Any, Any], otherwise: str, why: str = "") -> Meaning:
    """A key with a fixed set of values."""

    def read(value: Any, words: Words) -> Any:
        if not isinstance(value, str | bool) or value not in names:
            raise Refused(otherwise)
        return names[value]

    return Meaning(ours=ours, why=why, read=read)


def trackers(value: Any, words: Words) -> list[str]:
    """The console and the metrics file, and the given trackers."""
    names = value if isinstance(value, list) else [value]
    if "all" in names:
        raise Refused("list the trackers: tensorboard, wandb, trackio or none")
    return ["console", "jsonl", *(str(name) for name in names if name != "none")]


def _loss_type(value: Any, words: Words) -> Several:
    if value in LOSSES:
        return Several({"algorithm.loss": value})
    if value not in AGGREGATIONS:
        raise Refused(f"supported loss types: {', '.join([*AGGREGATIONS, *LOSSES])}")
    found = Several({"algorithm.aggregation": AGGREGATIONS[value]})
    if value == "dr_grpo" and words.get("max_completion_length") is not None:
        found["algorithm.max_response_tokens"] = words["max_completion_length"]
    return found


def _level(value: Any, words: Words) -> Any:
    if value not in ("token", "sequence"):
        raise Refused("must be token (GRPO) or sequence (GSPO); algorithm.loss=gspo-token is the token-level variant")
    loss = words.get("loss_type")
    if value == "sequence" and loss in LOSSES:
        raise Refused(f"loss_type {loss} uses token ratios: use grpo, or level token")
    return loss if loss in LOSSES else {"token": "clip", "sequence": "gspo"}[value]


def _epsilon(value: Any, words: Words) -> Several:
    if words.get("loss_type") in LOSSES:
        return Several({})
    found = Several({"algorithm.loss.clip_low": value})
    if words.get("epsilon_high") is None:
        found["algorithm.loss.clip_high"] = value
    return found


def _epsilon_high(value: Any, words: Words) -> Any:
    if words.get("loss_type") == "sapo":
        return Several({})
    if words.get("loss_type") != "cispo":
        return value
    if not isinstance(value, int | float) or value < 1:
        raise Refused("with loss_type cispo, it is the maximum weight of a token, at least 1")
    return value - 1


def _beta(value: Any, words: Words) -> Several:
    return Several({"algorithm.kl.coefficient": value, **({"algorithm.kl.estimator": "k3"} if value else {})})


def _context(value: Any, words: Words) -> int:
    parts = (value, words.get("max_completion_length", 256))
    if not all(isinstance(part, int) and part > 0 for part in parts):
        raise Refused("max_prompt_length and max_completion_length must be positive integers")
    return int(sum(parts))


def _engine(value: Any, words: Words) -> str:
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    return "vllm" if value else "torch"


def _of_vllm(ours: str) -> Meaning:
    """A key that is used only with vLLM."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get("use_vllm") is True else {})

    return Meaning(ours=ours, why="only with use_vllm: true", read=read)


def _of_sapo(ours: str) -> Meaning:
    """A key that is used only with the SAPO loss."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get("loss_type") == "sapo" else {})

    return Meaning(ours=ours, why="only with loss_type: sapo", read=read)


def _warmup_share(value: Any, words: Words) -> int:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise Refused("must be a fraction of all steps, from 0 to below 1")
    return math.ceil(round(value * steps(None, words), 6))


def _betas(value: Any, words: Words) -> list[Any]:
    return [words.get("adam_beta1", 0.9), words.get("adam_beta2", 0.999)]


def _strategy_of(ours: str) -> Meaning:
    """``save_strategy`` and ``eval_strategy``: never, every N steps, or every pass over the data."""

    def read(value: Any, words: Words) -> Several:
        if value == "no":
            return Several({ours: 0})
        if value == "epoch":
            return Several({ours: steps_of_epoch(words)})
        if value != "steps":
            raise Refused("must be no, steps or epoch; the best checkpoint by evaluation is always kept")
        return Several({})

    return Meaning(ours=ours, why="no: 0; epoch: one pass over the data; steps: as set by the key for steps", read=read)


def _do_eval(value: Any, words: Words) -> Several:
    if not isinstance(value, bool):
        raise Refused("must be true or false")
    asked = words.get("eval_strategy") in ("steps", "epoch")
    return Several({} if value or asked else {"evaluation.every": 0})


def _steps_unless(strategy: str) -> Any:
    def read(value: Any, words: Words) -> Any:
        off = strategy == "eval_strategy" and words.get("do_eval") is False and words.get(strategy) is None
        return Several({}) if off or words.get(strategy) in ("no", "epoch") else as_steps(value, words)

    return read


def _most_steps(value: Any, words: Words) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused("must be an integer number of optimiser steps; -1 uses num_train_epochs")
    return steps(value, words) if value > 0 else Several({})


def _epochs(value: Any, words: Words) -> Any:
    most = words.get("max_steps")
    return Several({}) if isinstance(most, int) and most > 0 else steps(value, words)


_OPTIMISERS = ("adamw_torch", "adamw_torch_fused", "adamw_hf")

TRL: Mapping[str, Meaning] = {
    "num_generations": Meaning(ours="rollout.group_size", read=lambda value, words: whole(words, "num_generations", 8)),
    "per_device_train_batch_size": Meaning(ours="trainer.tasks_per_step", why=_SIZES, read=sizes),
    "steps_per_generation": Meaning(ours="trainer.updates_per_rollout", why=_UPDATES, read=sizes),
    "generation_batch_size": Meaning(ours="trainer.tasks_per_step", why=_SIZES, read=sizes),
    "gradient_accumulation_steps": Meaning(ours="trainer.updates_per_rollout", why=_UPDATES, read=sizes),
    "num_iterations": Meaning(ours="trainer.epochs", why="passes over each rollout"),
    "num_train_epochs": Meaning(
        ours="trainer.steps",
        why="rows of train_file x num_train_epochs / tasks per step; max_steps takes precedence",
        read=_epochs,
    ),
    "max_steps": Meaning(
        ours="trainer.steps", why="optimiser steps, converted to rollouts; -1 uses num_train_epochs", read=_most_steps
    ),
    "importance_sampling_level": Meaning(
        ours="algorithm.loss",
        why="token: clip, the loss of GRPO; sequence: gspo, with its clip range if epsilon is not given",
        read=_level,
    ),
    "loss_type": Meaning(
        ours="algorithm.aggregation",
        why="means are over the mini-batch; cispo and sapo set algorithm.loss",
        read=_loss_type,
    ),
    "scale_rewards": one_of(
        "algorithm.advantage.normalise_by_std",
        {True: True, False: False, "group": True, "none": False},
        "must be group (true) or none (false); for the batch, use algorithm.advantage=reinforce-plus-plus-baseline",
    ),
    "epsilon": Meaning(
        ours="algorithm.loss.clip_low",
        why="and algorithm.loss.clip_high; not with loss_type cispo or sapo",
        read=_epsilon,
    ),
    "epsilon_high": Meaning(ours="algorithm.loss.clip_high", why="minus 1 with loss_type cispo", read=_epsilon_high),
    "delta": Meaning(ours="algorithm.loss.dual_clip"),
    "sapo_temperature_pos": _of_sapo("algorithm.loss.positive_temperature"),
    "sapo_temperature_neg": _of_sapo("algorithm.loss.negative_temperature"),
    "beta": Meaning(
        ours="algorithm.kl.coefficient", why="if above 0, also sets kl.estimator to k3, as in TRL", read=_beta
    ),
    "use_bias_correction_kl": Meaning(ours="algorithm.kl.importance_weighted"),
    "sync_ref_model": nothing(
        "the reference policy is fixed", only=(False,), otherwise="the reference policy is fixed: give false"
    ),
    "mask_truncated_completions": Meaning(ours="algorithm.overlong.mask_truncated"),
    "top_entropy_quantile": nothing(
        "all tokens are trained on", only=(1, 1.0), otherwise="filtering tokens by entropy is not supported: give 1.0"
    ),
    "reward_weights": never("set the weight of each reward: reward.ID.weight"),
    "vllm_importance_sampling_correction": one_of(
        "algorithm.rollout_importance_sampling.mode", {True: "truncate", False: "none"}, "must be true or false"
    ),
    "vllm_importance_sampling_cap": Meaning(ours="algorithm.rollout_importance_sampling.high"),
    "max_prompt_length": Meaning(
        ours="rollout.max_context_tokens",
        why="plus max_completion_length; prompts are not truncated, and longer trajectories end with the reason length",
        read=_context,
    ),
    "max_completion_length": Meaning(ours="rollout.max_new_tokens", why="per turn"),
    "temperature": Meaning(ours="rollout.temperature"),
    "top_p": Meaning(ours="rollout.top_p"),
    "top_k": Meaning(
        ours="rollout.top_k",
        why="0 keeps all, like -1 in TRL",
        read=lambda value, words: max(0, value) if isinstance(value, int) else value,
    ),
    "min_p": nothing("0 has no effect", only=(0, 0.0), otherwise="not supported: use top_p or top_k"),
    "repetition_penalty": nothing(
        "1 has no effect", only=(1, 1.0), otherwise="the sampled distribution would differ from the trained one"
    ),
    "use_vllm": Meaning(ours="rollout.engine", why="true is vllm, false is torch", read=_engine),
    "vllm_mode": nothing(
        "vLLM runs on the same machine as the trainer",
        only=("colocate",),
        otherwise="the run starts vLLM itself: give colocate",
    ),
    "vllm_gpu_memory_utilization": _of_vllm("rollout.vllm.gpu_memory_utilization"),
    "vllm_tensor_parallel_size": _of_vllm("rollout.vllm.tensor_parallel_size"),
    "vllm_enable_sleep_mode": _of_vllm("rollout.vllm.sleep"),
    "vllm_max_model_length": Meaning(ours="rollout.max_context_tokens"),
    "learning_rate": Meaning(ours="trainer.learning_rate"),
    "weight_decay": Meaning(ours="trainer.weight_decay"),
    "max_grad_norm": Meaning(ours="trainer.max_gradient_norm"),
    "adam_beta1": Meaning(ours="trainer.betas", read=_betas),
    "adam_beta2": Meaning(ours="trainer.betas", read=_betas),
    "adam_epsilon": nothing("fixed at 1e-8", only=(1e-8,), otherwise="only 1e-8 is supported"),
    "optim": nothing("the optimiser is AdamW", only=_OPTIMISERS, otherwise="the optimiser is AdamW: adamw_torch"),
    "lr_scheduler_type": one_of("trainer.schedule", SCHEDULES, f"must be one of {', '.join(SCHEDULES)}"),
    "warmup_ratio": Meaning(ours="trainer.lr_warmup_steps", why="a fraction of all steps", read=_warmup_share),
    "warmup_steps": Meaning(
        ours="trainer.lr_warmup_steps", why="optimiser steps, converted to rollouts", read=as_steps
    ),
    "seed": Meaning(ours="seed"),
    "do_train": nothing("rlcore run trains", only=(True,), otherwise="to evaluate without training, use rlcore eval"),
    "do_eval": Meaning(
        ours="evaluation.every",
        why="false: 0, unless eval_strategy is steps or epoch; true has no effect",
        read=_do_eval,
    ),
    "do_predict": nothing("use rlcore eval"),
    "eval_strategy": _strategy_of("evaluation.every"),
    "eval_steps": Meaning(
        ours="evaluation.every",
        why="optimiser steps, or a fraction of them, converted to rollouts",
        read=_steps_unless("eval_strategy"),
    ),
    "num_generations_eval": Meaning(ours="evaluation.samples"),
    "per_device_eval_batch_size": nothing(_MEMORY),
    "save_strategy": _strategy_of("checkpoint.every"),
    "save_steps": Meaning(
        ours="checkpoint.every",
        why="optimiser steps, or a fraction of them, converted to rollouts",
        read=_steps_unless("save_strategy"),
    ),
    "save_total_limit": Meaning(ours="checkpoint.keep", why="in addition to the best checkpoint"),
    "report_to": Meaning(ours="trackers.use", why="console and jsonl are always used", read=trackers),
    "run_name": Meaning(ours="name"),
    "logging_dir": nothing(_PLACE),
    "overwrite_output_dir": nothing("run directories are never overwritten"),
    "logging_steps": nothing(_SHOWN),
    "logging_strategy": nothing(_SHOWN),
    "logging_first_step": nothing(_SHOWN),
    "log_completions": nothing(_SHOWN),
    "log_level": nothing("messages are logged to output.log"),
    "disable_tqdm": nothing("one line per step is printed"),
    "gradient_checkpointing": Meaning(ours="trainer.gradient_checkpointing"),
    "gradient_checkpointing_kwargs": nothing("the non-reentrant implementation is used"),
    "bf16": nothing("model.dtype decides; auto is bfloat16 on a GPU"),
    "fp16": nothing(
        "model.dtype decides",
        only=(False,),
        otherwise="loss scaling for float16 is not supported: bf16, or model.dtype=float32",
    ),
    "tf32": nothing("model.dtype sets the dtype of the weights; torch decides about TF32"),
    "disable_dropout": nothing("dropout is not used in reinforcement learning"),
    "use_liger_loss": nothing("logits of the whole vocabulary are never held in memory at once"),
    "use_liger_kernel": nothing("logits of the whole vocabulary are never held in memory at once"),
    "torch_compile": nothing(
        "the model is not compiled", only=(False,), otherwise="compilation is not supported: give false"
    ),
    "dataloader_num_workers": nothing(_LOADING),
    "dataloader_pin_memory": nothing(_LOADING),
    "remove_unused_columns": nothing(
        "environment and rewards receive all fields of a row",
        only=(False,),
        otherwise="fields are not removed: give false",
    ),
    "ds3_gather_for_generation": nothing("weights are not sharded"),
    "deepspeed": never("DeepSpeed is not supported; strategy.id distributes updates over devices"),
    "push_to_hub": nothing(
        "models are not uploaded", only=(False,), otherwise="rlcore merge CHECKPOINT --out FOLDER, then upload it"
    ),
}
"""By key of ``GRPOConfig`` or its base class ``TrainingArguments``."""

__all__ = ["TRL", "generation", "one_of", "trackers"]
