"""The words of TRL's ``GRPOConfig``: what each is here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlcore.config.trl_batches import as_steps, generation, sizes, steps, steps_of_epoch, whole
from rlcore.config.vocabulary import Meaning, Refused, Several, Words, never, nothing

AGGREGATIONS = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
LOSSES = ("cispo", "sapo")
SCHEDULES = {"linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant"}
_MEMORY = "memory only; trainer.max_tokens_per_batch decides how much is computed at once"
_LOADING = "tasks are read once, when the run starts"
_SHOWN = "every step is logged, and every trajectory stored"
_SIZES = "completions of a generation / num_generations"
_UPDATES = "optimiser steps of one pass over a generation"
_PLACE = "the run directory holds everything; runs and name decide where it is"


def one_of(ours: str, names: Mapping[Any, Any], otherwise: str, why: str = "") -> Meaning:
    """A word with a closed list of values."""

    def read(value: Any, words: Words) -> Any:
        if not isinstance(value, str | bool) or value not in names:
            raise Refused(otherwise)
        return names[value]

    return Meaning(ours=ours, why=why, read=read)


def trackers(value: Any, words: Words) -> list[str]:
    """The console and the file of metrics always, and what is named."""
    names = value if isinstance(value, list) else [value]
    if "all" in names:
        raise Refused("name the trackers: tensorboard, wandb, trackio or none")
    return ["console", "jsonl", *(str(name) for name in names if name != "none")]


def _loss_type(value: Any, words: Words) -> Several:
    if value in LOSSES:
        return Several({"algorithm.loss": value})
    if value not in AGGREGATIONS:
        raise Refused(f"the loss types that are the same here are {', '.join([*AGGREGATIONS, *LOSSES])}")
    found = Several({"algorithm.aggregation": AGGREGATIONS[value]})
    if value == "dr_grpo" and words.get("max_completion_length") is not None:
        found["algorithm.max_response_tokens"] = words["max_completion_length"]
    return found


def _level(value: Any, words: Words) -> Any:
    if value not in ("token", "sequence"):
        raise Refused("it is token (GRPO) or sequence (GSPO); algorithm.loss=gspo-token is its form by tokens")
    if value == "sequence" and words.get("loss_type") in LOSSES:
        raise Refused(f"loss_type {words['loss_type']} has ratios of tokens: take grpo, or level token")
    return value


def _epsilon(value: Any, words: Words) -> Several:
    if words.get("loss_type") in LOSSES:
        return Several({})
    found = Several({"algorithm.clip_low": value})
    if words.get("epsilon_high") is None:
        found["algorithm.clip_high"] = value
    return found


def _epsilon_high(value: Any, words: Words) -> Any:
    if words.get("loss_type") == "sapo":
        return Several({})
    if words.get("loss_type") != "cispo":
        return value
    if not isinstance(value, int | float) or value < 1:
        raise Refused("with loss_type cispo it is the largest weight of a token, at least 1")
    return value - 1


def _beta(value: Any, words: Words) -> Several:
    return Several({"algorithm.kl.coefficient": value, **({"algorithm.kl.estimator": "k3"} if value else {})})


def _context(value: Any, words: Words) -> int:
    parts = (value, words.get("max_completion_length", 256))
    if not all(isinstance(part, int) and part > 0 for part in parts):
        raise Refused("max_prompt_length and max_completion_length are whole numbers above 0")
    return int(sum(parts))


def _engine(value: Any, words: Words) -> str:
    if not isinstance(value, bool):
        raise Refused("it is true or false")
    return "vllm" if value else "torch"


def _of_vllm(ours: str) -> Meaning:
    """A word that counts where vLLM samples."""

    def read(value: Any, words: Words) -> Several:
        return Several({ours: value} if words.get("use_vllm") is True else {})

    return Meaning(ours=ours, why="counts where use_vllm: true", read=read)


def _warmup_share(value: Any, words: Words) -> int:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise Refused("it is a share of all steps, from 0 to below 1")
    return math.ceil(round(value * steps(None, words), 6))


def _betas(value: Any, words: Words) -> list[Any]:
    return [words.get("adam_beta1", 0.9), words.get("adam_beta2", 0.999)]


def _strategy_of(ours: str) -> Meaning:
    """``save_strategy`` and ``eval_strategy``: never, by steps, or with every pass over the data."""

    def read(value: Any, words: Words) -> Several:
        if value == "no":
            return Several({ours: 0})
        if value == "epoch":
            return Several({ours: steps_of_epoch(words)})
        if value != "steps":
            raise Refused("it is no, steps or epoch; the best checkpoint by evaluation is always kept")
        return Several({})

    return Meaning(ours=ours, why="no: 0, epoch: a pass over the data; steps: the word of its steps", read=read)


def _steps_unless(strategy: str) -> Any:
    def read(value: Any, words: Words) -> Any:
        return Several({}) if words.get(strategy) in ("no", "epoch") else as_steps(value, words)

    return read


def _most_steps(value: Any, words: Words) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused("it is a whole number of optimiser steps; -1 leaves it to num_train_epochs")
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
        why="rows of train_file x num_train_epochs / tasks of a step; not beside max_steps",
        read=_epochs,
    ),
    "max_steps": Meaning(
        ours="trainer.steps", why="it counts optimiser steps; -1 leaves it to num_train_epochs", read=_most_steps
    ),
    "importance_sampling_level": Meaning(
        ours="algorithm.importance_sampling_level",
        why="token: GRPO; sequence: GSPO, with its clip range where no epsilon is given",
        read=_level,
    ),
    "loss_type": Meaning(
        ours="algorithm.aggregation",
        why="means are over the mini-batch; cispo and sapo are algorithm.loss",
        read=_loss_type,
    ),
    "scale_rewards": one_of(
        "algorithm.normalise_by_std",
        {True: True, False: False, "group": True, "none": False},
        "it is group (true) or none (false); algorithm.advantage=reinforce-plus-plus-baseline works on the batch",
    ),
    "epsilon": Meaning(
        ours="algorithm.clip_low", why="and algorithm.clip_high; not with loss_type cispo or sapo", read=_epsilon
    ),
    "epsilon_high": Meaning(ours="algorithm.clip_high", why="less 1 with loss_type cispo", read=_epsilon_high),
    "delta": Meaning(ours="algorithm.dual_clip"),
    "sapo_temperature_pos": Meaning(ours="algorithm.sapo_positive"),
    "sapo_temperature_neg": Meaning(ours="algorithm.sapo_negative"),
    "beta": Meaning(ours="algorithm.kl.coefficient", why="above 0 with kl.estimator k3, which TRL has", read=_beta),
    "use_bias_correction_kl": Meaning(ours="algorithm.kl.importance_weighted"),
    "sync_ref_model": nothing(
        "the reference policy stays as it is", only=(False,), otherwise="the reference policy stays: give false"
    ),
    "mask_truncated_completions": Meaning(ours="algorithm.overlong.mask_truncated"),
    "top_entropy_quantile": nothing(
        "all tokens are trained", only=(1, 1.0), otherwise="tokens are not left out by entropy: give 1.0"
    ),
    "reward_weights": never("each reward has its own: reward.ID.weight"),
    "vllm_importance_sampling_correction": one_of(
        "algorithm.correction.mode", {True: "truncate", False: "none"}, "it is true or false"
    ),
    "vllm_importance_sampling_cap": Meaning(ours="algorithm.correction.high"),
    "max_prompt_length": Meaning(
        ours="rollout.max_context_tokens",
        why="with max_completion_length; no prompt is cut, and what is longer ends with the reason length",
        read=_context,
    ),
    "max_completion_length": Meaning(ours="rollout.max_new_tokens", why="of one turn"),
    "temperature": Meaning(ours="rollout.temperature"),
    "top_p": Meaning(ours="rollout.top_p"),
    "top_k": Meaning(
        ours="rollout.top_k",
        why="0 keeps all, as -1 does there",
        read=lambda value, words: max(0, value) if isinstance(value, int) else value,
    ),
    "min_p": nothing("it is 0", only=(0, 0.0), otherwise="there is no such cut here: top_p or top_k"),
    "repetition_penalty": nothing(
        "1 changes nothing", only=(1, 1.0), otherwise="it would make the sampled distribution another than the trained"
    ),
    "use_vllm": Meaning(ours="rollout.engine", why="true is vllm, false is torch", read=_engine),
    "vllm_mode": nothing(
        "vLLM runs beside the trainer, on the same machine",
        only=("colocate",),
        otherwise="vLLM is started by the run itself: give colocate",
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
    "adam_epsilon": nothing("1e-8 is AdamW's own", only=(1e-8,), otherwise="it is 1e-8 here"),
    "optim": nothing("the optimiser is AdamW", only=_OPTIMISERS, otherwise="the optimiser is AdamW: adamw_torch"),
    "lr_scheduler_type": one_of("trainer.schedule", SCHEDULES, f"it is one of {', '.join(SCHEDULES)}"),
    "warmup_ratio": Meaning(ours="trainer.warmup_steps", why="a share of all steps", read=_warmup_share),
    "warmup_steps": Meaning(ours="trainer.warmup_steps", why="optimiser steps, as rollouts", read=as_steps),
    "seed": Meaning(ours="seed"),
    "do_train": nothing("rlcore run trains", only=(True,), otherwise="rlcore eval measures without training"),
    "do_eval": nothing("evaluation.every decides, 0 for never"),
    "do_predict": nothing("rlcore eval does, at any time"),
    "eval_strategy": _strategy_of("evaluation.every"),
    "eval_steps": Meaning(
        ours="evaluation.every", why="optimiser steps, or a share, as rollouts", read=_steps_unless("eval_strategy")
    ),
    "num_generations_eval": Meaning(ours="evaluation.samples"),
    "per_device_eval_batch_size": nothing(_MEMORY),
    "save_strategy": _strategy_of("checkpoint.every"),
    "save_steps": Meaning(
        ours="checkpoint.every", why="optimiser steps, or a share, as rollouts", read=_steps_unless("save_strategy")
    ),
    "save_total_limit": Meaning(ours="checkpoint.keep", why="and the best"),
    "report_to": Meaning(ours="trackers.use", why="console and jsonl always", read=trackers),
    "run_name": Meaning(ours="name"),
    "logging_dir": nothing(_PLACE),
    "overwrite_output_dir": nothing("a run directory is never used twice"),
    "logging_steps": nothing(_SHOWN),
    "logging_strategy": nothing(_SHOWN),
    "logging_first_step": nothing(_SHOWN),
    "log_completions": nothing(_SHOWN),
    "log_level": nothing("output.log holds what was said"),
    "disable_tqdm": nothing("one line a step is printed"),
    "gradient_checkpointing": Meaning(ours="trainer.gradient_checkpointing"),
    "gradient_checkpointing_kwargs": nothing("its newer form is always used"),
    "bf16": nothing("model.dtype decides; auto is bfloat16 on a GPU"),
    "fp16": nothing(
        "model.dtype decides", only=(False,), otherwise="no loss is scaled for float16: bf16, or model.dtype=float32"
    ),
    "tf32": nothing("model.dtype decides how weights are kept; products are torch's affair"),
    "disable_dropout": nothing("nothing is dropped out in reinforcement learning"),
    "use_liger_loss": nothing("log-probabilities never take the memory of the whole vocabulary"),
    "use_liger_kernel": nothing("log-probabilities never take the memory of the whole vocabulary"),
    "torch_compile": nothing("nothing is compiled", only=(False,), otherwise="the trainer is not compiled: false"),
    "dataloader_num_workers": nothing(_LOADING),
    "dataloader_pin_memory": nothing(_LOADING),
    "remove_unused_columns": nothing(
        "every field of a row reaches environment and rewards",
        only=(False,),
        otherwise="no field of a row is taken away: give false",
    ),
    "ds3_gather_for_generation": nothing("weights are whole on every device"),
    "deepspeed": never("there is no DeepSpeed here; strategy.id decides over which devices an update is spread"),
    "push_to_hub": nothing(
        "nothing leaves the machine", only=(False,), otherwise="rlcore merge CHECKPOINT --out FOLDER, then upload it"
    ),
}
"""By its name in ``GRPOConfig``, or in the ``TrainingArguments`` below it."""

__all__ = ["TRL", "generation", "one_of", "trackers"]
