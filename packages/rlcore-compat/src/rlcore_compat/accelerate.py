"""Files of ``accelerate config``, which define the number of processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.errors import did_you_mean

from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.processes import KIND, PROCESSES
from rlcore_compat.trl_batches import whole
from rlcore_compat.vocabulary import Meaning, Refused, Several, Words, nothing

_COPIES = ("MULTI_GPU", "MULTI_CPU")
_SHARDING = ("DEEPSPEED", "FSDP", "MEGATRON_LM")
_DEVICES = ("MULTI_HPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA", "MULTI_XPU", "XLA")
_INSTEAD = "distributed_type: MULTI_GPU runs data-parallel processes, each with all weights (strategy.id=ddp)"
_ELSEWHERE = "a run uses one machine"
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


def _distributed(value: Any, words: Words) -> Several:
    if value == "NO":
        return Several({"strategy.id": "single"})
    if value in _COPIES:
        return Several({"strategy.id": "ddp"})
    if value in _SHARDING:
        _sharded(value, words)
    if value in _DEVICES:
        raise Refused(f"these devices are not supported: {_INSTEAD}")
    near = did_you_mean(str(value).upper(), ("NO", *_COPIES, *_SHARDING, *_DEVICES))
    raise Refused(f"unknown type: {near or 'NO, MULTI_GPU and MULTI_CPU are supported'}")


def _sharded(value: Any, words: Words) -> None:
    if value == {}:  # as written by accelerate config for other types
        return
    raise Refused(f"sharding of weights or optimiser is not supported: {_INSTEAD}")


def _processes(value: Any, words: Words) -> Several:
    count, kind = whole(words, PROCESSES, 1), words.get(KIND)
    if kind in _COPIES:
        return Several({"strategy.processes": count})
    if kind == "NO" and count > 1:
        raise Refused(f"distributed_type: NO runs one process: {_INSTEAD}")
    return Several({})


def _deepspeed(value: Any, words: Words) -> None:
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


def _parallel(value: Any, words: Words) -> None:
    sizes = {key: size for key, size in value.items() if key.endswith("_size")} if isinstance(value, Mapping) else {}
    if larger := [f"{key.removeprefix('parallelism_config_')}: {size}" for key, size in sizes.items() if size != 1]:
        raise Refused(f"{', '.join(larger)}: a model or a sequence is not split over devices: {_INSTEAD}")


def _cpu(value: Any, words: Words) -> Several:
    return Several({"model.device": "cpu"} if value is True else {})


ACCELERATE = FileVocabulary(
    name="accelerate",
    meanings={
        KIND: Meaning(ours="strategy.id", why="NO is single, MULTI_GPU and MULTI_CPU are ddp", read=_distributed),
        PROCESSES: Meaning(ours="strategy.processes", why="only with MULTI_GPU and MULTI_CPU", read=_processes),
        "deepspeed_config": Meaning(
            ours=None,
            why="refused: sharding and offloading are not supported; an empty table has no effect",
            read=_deepspeed,
        ),
        "fsdp_config": Meaning(
            ours=None, why="refused: sharding is not supported; an empty table has no effect", read=_sharded
        ),
        "megatron_lm_config": Meaning(
            ours=None, why="refused: sharding is not supported; an empty table has no effect", read=_sharded
        ),
        "parallelism_config": Meaning(ours=None, why="sizes of 1 have no effect; others are refused", read=_parallel),
        "fp8_config": nothing("only with mixed_precision: fp8, which is not supported"),
        "mpirun_config": nothing(_ELSEWHERE),
        "compute_environment": nothing(_ELSEWHERE, only=("LOCAL_MACHINE",), otherwise=f"{_ELSEWHERE}: LOCAL_MACHINE"),
        "num_machines": nothing(_ELSEWHERE, only=(1,), otherwise=f"{_ELSEWHERE}: give 1"),
        "machine_rank": nothing(_ELSEWHERE, only=(0,), otherwise=f"{_ELSEWHERE}: give 0"),
        "main_process_ip": nothing(_ELSEWHERE),
        "main_process_port": nothing("chosen automatically"),
        "rdzv_backend": nothing("chosen automatically"),
        "same_network": nothing(_ELSEWHERE),
        "mixed_precision": nothing(
            "model.dtype decides; auto is bfloat16 on a GPU",
            only=("no", "bf16"),
            otherwise="loss scaling for float16 and float8 is not supported: bf16, or no",
        ),
        "downcast_bf16": nothing("only for TPUs"),
        "use_cpu": Meaning(ours="model.device", why="true is cpu", read=_cpu),
        "gpu_ids": nothing(
            "all visible devices are used", only=("all",), otherwise="select devices with CUDA_VISIBLE_DEVICES"
        ),
        "enable_cpu_affinity": nothing("the operating system assigns cores"),
        "main_training_function": nothing("rlcore run is the training program"),
        "debug": nothing("errors are always reported"),
        "commands": nothing("rlcore run is the training program"),
        "command_file": nothing("rlcore run is the training program"),
        "tpu_name": nothing("only for TPUs"),
        "tpu_zone": nothing("only for TPUs"),
        "tpu_env": nothing("only for TPUs"),
        "tpu_use_cluster": nothing("only for TPUs"),
        "tpu_use_sudo": nothing("only for TPUs"),
    },
)

__all__ = ["ACCELERATE"]
