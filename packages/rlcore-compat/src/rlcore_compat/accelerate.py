"""Files of ``accelerate config``, which define the number of processes. The keys are in ``accelerate.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.errors import did_you_mean

from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.tables import Refused, Several, Table, Words
from rlcore_compat.trl_batches import KIND, PROCESSES, whole

_STRATEGIES = {"NO": "single", "MULTI_GPU": "ddp", "MULTI_CPU": "ddp", "FSDP": "fsdp2"}
_SHARDING = ("DEEPSPEED", "MEGATRON_LM")
_DEVICES = ("MULTI_HPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA", "MULTI_XPU", "XLA")
_INSTEAD = (
    "distributed_type: MULTI_GPU runs processes with all weights in each (strategy.id=ddp), and FSDP processes that "
    "divide them (strategy.id=fsdp2)"
)
_FSDP: Mapping[str, tuple[Any, ...]] = {
    "fsdp_version": (1, 2),
    "fsdp_sharding_strategy": ("FULL_SHARD", 1),
    "fsdp_reshard_after_forward": (True, "FULL_SHARD"),
    "fsdp_offload_params": (False,),
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP",),
}
"""The values of ``fsdp_config`` that mean what fsdp2 does."""
_FSDP_FREE = frozenset(
    {
        "fsdp_backward_prefetch",
        "fsdp_cpu_ram_efficient_loading",
        "fsdp_forward_prefetch",
        "fsdp_state_dict_type",
        "fsdp_sync_module_states",
        "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_use_orig_params",
    }
)
"""Keys of ``fsdp_config`` that change neither the result nor what a process stores."""
_CHECKPOINTING = "fsdp_activation_checkpointing"
_READ = frozenset(
    {
        "deepspeed_config_file",
        "deepspeed_hostfile",
        "deepspeed_exclusion_filter",
        "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher",
        "deepspeed_moe_layer_cls_names",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "offload_optimizer_device",
        "offload_optimizer_nvme_path",
        "offload_param_device",
        "offload_param_nvme_path",
        "zero3_init_flag",
        "zero3_save_16bit_model",
        "zero_stage",
    }
)
"""Keys of ``deepspeed_config`` that accelerate reads; it ignores all others."""


def distributed_type(value: Any, words: Words) -> Any:
    if isinstance(value, str) and value in _STRATEGIES:
        return _STRATEGIES[value]
    if value in _SHARDING:
        return sharded(value, words)
    if value in _DEVICES:
        raise Refused(f"these devices are not supported: {_INSTEAD}")
    near = did_you_mean(str(value).upper(), (*_STRATEGIES, *_SHARDING, *_DEVICES))
    raise Refused(f"unknown type: {near or 'NO, MULTI_GPU, MULTI_CPU and FSDP are supported'}")


def sharded(value: Any, words: Words) -> Several:
    if value == {}:  # as written by accelerate config for other types
        return Several()
    raise Refused(f"DeepSpeed and Megatron-LM are not supported: {_INSTEAD}")


def fsdp(value: Any, words: Words) -> Any:
    if value == {}:
        return Several()
    if words.get(KIND) != "FSDP" or not isinstance(value, Mapping):
        raise Refused("it has an effect only with distributed_type: FSDP")
    for key, given in value.items():
        if key in _FSDP and given not in _FSDP[key]:
            raise Refused(f"{key}: {given} is not supported: {' or '.join(map(str, _FSDP[key]))}")
        if key not in (*_FSDP, *_FSDP_FREE, _CHECKPOINTING):
            near = did_you_mean(key, (*_FSDP, *_FSDP_FREE, _CHECKPOINTING))
            raise Refused(f"unknown key {key}{f': {near}' if near else ''}")
    return True if value.get(_CHECKPOINTING) is True else Several()


def processes(value: Any, words: Words) -> Any:
    count, kind = whole(words, PROCESSES, 1), words.get(KIND)
    if kind == "NO" and count > 1:
        raise Refused(f"distributed_type: NO runs one process: {_INSTEAD}")
    if kind != "NO" and kind in [*_STRATEGIES]:
        return count
    return Several()


def deepspeed(value: Any, words: Words) -> None:
    if value == {}:
        return
    given = value if isinstance(value, Mapping) else {}
    ignored = [key for key in given if key not in _READ]
    if not ignored:
        raise Refused(f"DeepSpeed is not supported: {_INSTEAD}")
    raise Refused(
        f"accelerate ignores {', '.join(ignored)}, which are valid only in a deepspeed_config_file, and would run "
        f"ZeRO-2 without offload; DeepSpeed is not supported: {_INSTEAD}"
    )


def parallelism(value: Any, words: Words) -> None:
    sizes = {key: size for key, size in value.items() if key.endswith("_size")} if isinstance(value, Mapping) else {}
    if larger := [f"{key.removeprefix('parallelism_config_')}: {size}" for key, size in sizes.items() if size != 1]:
        raise Refused(f"{', '.join(larger)}: a model or a sequence is not split over devices: {_INSTEAD}")


def cpu(value: Any, words: Words) -> Any:
    return "cpu" if value is True else Several()


ACCELERATE = FileVocabulary(name="accelerate", meanings=Table("rlcore_compat:accelerate.toml"))

__all__ = ["ACCELERATE"]
