"""Files of ``accelerate config``, which define the number of processes. The keys are in ``accelerate.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.errors import did_you_mean

from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.tables import Refused, Several, Table, Words
from rlcore_compat.trl_batches import KIND, PROCESSES, whole

_COPIES = ("MULTI_GPU", "MULTI_CPU")
_SHARDING = ("DEEPSPEED", "FSDP", "MEGATRON_LM")
_DEVICES = ("MULTI_HPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA", "MULTI_XPU", "XLA")
_INSTEAD = "distributed_type: MULTI_GPU runs data-parallel processes, each with all weights (strategy.id=ddp)"
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
    if value == "NO":
        return "single"
    if value in _COPIES:
        return "ddp"
    if value in _SHARDING:
        return sharded(value, words)
    if value in _DEVICES:
        raise Refused(f"these devices are not supported: {_INSTEAD}")
    near = did_you_mean(str(value).upper(), ("NO", *_COPIES, *_SHARDING, *_DEVICES))
    raise Refused(f"unknown type: {near or 'NO, MULTI_GPU and MULTI_CPU are supported'}")


def sharded(value: Any, words: Words) -> Several:
    if value == {}:  # as written by accelerate config for other types
        return Several()
    raise Refused(f"sharding of weights or optimiser is not supported: {_INSTEAD}")


def processes(value: Any, words: Words) -> Any:
    count, kind = whole(words, PROCESSES, 1), words.get(KIND)
    if kind in _COPIES:
        return count
    if kind == "NO" and count > 1:
        raise Refused(f"distributed_type: NO runs one process: {_INSTEAD}")
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
