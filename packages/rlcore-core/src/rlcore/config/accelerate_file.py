"""The file of ``accelerate config``: over how many processes a run is spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcore.config.trl_batches import PROCESSES, whole
from rlcore.config.vocabulary import FileVocabulary, Meaning, Refused, Several, Words, nothing
from rlcore.errors import did_you_mean

_COPIES = ("MULTI_GPU", "MULTI_CPU")
_SHARDING = ("DEEPSPEED", "FSDP", "MEGATRON_LM")
_DEVICES = ("MULTI_HPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA", "MULTI_XPU", "XLA")
_INSTEAD = "distributed_type: MULTI_GPU spreads an update over processes that each hold all weights (strategy.id=ddp)"
_ELSEWHERE = "a run stays on one machine"
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
"""What accelerate reads of ``deepspeed_config``; anything else there it passes over."""


def _distributed(value: Any, words: Words) -> Several:
    if value == "NO":
        return Several({"strategy.id": "single"})
    if value in _COPIES:
        return Several({"strategy.id": "ddp"})
    if value in _SHARDING:
        _sharded(value, words)
    if value in _DEVICES:
        raise Refused(f"there is no strategy for these devices: {_INSTEAD}")
    near = did_you_mean(str(value).upper(), ("NO", *_COPIES, *_SHARDING, *_DEVICES))
    raise Refused(f"accelerate has no such type: {near or 'NO, MULTI_GPU and MULTI_CPU mean something here'}")


def _sharded(value: Any, words: Words) -> None:
    raise Refused(f"there is no strategy that shards weights or optimiser: {_INSTEAD}")


def _processes(value: Any, words: Words) -> Several:
    count, kind = whole(words, PROCESSES, 1), words.get("distributed_type")
    if kind in _COPIES:
        return Several({"strategy.processes": count})
    if kind == "NO" and count > 1:
        raise Refused(f"distributed_type: NO has one process: {_INSTEAD}")
    return Several({})


def _deepspeed(value: Any, words: Words) -> None:
    given = value if isinstance(value, Mapping) else {}
    passed_over = [key for key in given if key not in _READ]
    if not passed_over:
        raise Refused(f"there is no DeepSpeed here: {_INSTEAD}")
    raise Refused(
        f"accelerate itself passes over {', '.join(passed_over)}, which are DeepSpeed's own words and count in a "
        f"deepspeed_config_file alone, so that ZeRO-2 without offload would run whatever stands there; here there is "
        f"no DeepSpeed: {_INSTEAD}"
    )


def _cpu(value: Any, words: Words) -> Several:
    return Several({"model.device": "cpu"} if value is True else {})


ACCELERATE = FileVocabulary(
    name="accelerate",
    meanings={
        "distributed_type": Meaning(
            ours="strategy.id", why="NO is single, MULTI_GPU and MULTI_CPU are ddp", read=_distributed
        ),
        PROCESSES: Meaning(ours="strategy.processes", why="counts with MULTI_GPU and MULTI_CPU", read=_processes),
        "deepspeed_config": Meaning(ours=None, why="refused: nothing is sharded or offloaded", read=_deepspeed),
        "fsdp_config": Meaning(ours=None, why="refused: nothing is sharded", read=_sharded),
        "compute_environment": nothing(_ELSEWHERE, only=("LOCAL_MACHINE",), otherwise=f"{_ELSEWHERE}: LOCAL_MACHINE"),
        "num_machines": nothing(_ELSEWHERE, only=(1,), otherwise=f"{_ELSEWHERE}: give 1"),
        "machine_rank": nothing(_ELSEWHERE, only=(0,), otherwise=f"{_ELSEWHERE}: give 0"),
        "main_process_ip": nothing(_ELSEWHERE),
        "main_process_port": nothing("processes of one machine find each other"),
        "rdzv_backend": nothing("processes of one machine find each other"),
        "same_network": nothing(_ELSEWHERE),
        "mixed_precision": nothing(
            "model.dtype decides; auto is bfloat16 on a GPU",
            only=("no", "bf16"),
            otherwise="no loss is scaled for float16 or float8: bf16, or no",
        ),
        "downcast_bf16": nothing("for TPUs alone"),
        "use_cpu": Meaning(ours="model.device", why="true is cpu", read=_cpu),
        "gpu_ids": nothing(
            "the devices that are visible are used", only=("all",), otherwise="CUDA_VISIBLE_DEVICES chooses devices"
        ),
        "enable_cpu_affinity": nothing("the system places processes"),
        "main_training_function": nothing("rlcore run is the program"),
        "debug": nothing("what fails is told in any case"),
        "tpu_env": nothing("for TPUs alone"),
        "tpu_use_cluster": nothing("for TPUs alone"),
        "tpu_use_sudo": nothing("for TPUs alone"),
    },
)

__all__ = ["ACCELERATE"]
