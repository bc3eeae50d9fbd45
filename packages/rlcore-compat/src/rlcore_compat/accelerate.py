"""Files of ``accelerate config``, which define the number of processes. The keys are in ``accelerate.toml``."""

from __future__ import annotations

from typing import Any

from rlcore.errors import did_you_mean

from rlcore_compat.file_vocabulary import FileVocabulary
from rlcore_compat.tables import Refused, Several, Table, Words
from rlcore_compat.trl_batches import KIND, PROCESSES, whole

_KINDS = ("NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED")
_DEVICES = ("MULTI_HPU", "MULTI_MLU", "MULTI_MUSA", "MULTI_NEURON", "MULTI_NPU", "MULTI_SDAA", "MULTI_XPU", "XLA")
COPIES = "parallelism_config.parallelism_config_dp_replicate_size"
_INSTEAD = (
    "distributed_type: MULTI_GPU runs processes with all weights in each (strategy.id=ddp), and FSDP processes that "
    "divide them (strategy.id=fsdp2)"
)


def distributed_type(value: Any, words: Words) -> Any:
    if value == "MEGATRON_LM":
        return sharded(value, words)
    if value in _DEVICES:
        raise Refused(f"these devices are not supported: {_INSTEAD}")
    known = (*_KINDS, *_DEVICES)
    raise Refused(f"unknown type: {did_you_mean(str(value).upper(), known) or _INSTEAD}")


def sharded(value: Any, words: Words) -> Several:
    if value == {}:  # as written by accelerate config for other types
        return Several()
    raise Refused(f"tensor and pipeline parallelism are not supported: {_INSTEAD}")


def processes(value: Any, words: Words) -> Any:
    count, kind = whole(words, PROCESSES, 1), words.get(KIND)
    return count if kind != "NO" and kind in _KINDS else Several()


def shard_size(value: Any, words: Words) -> int:
    copies, count = whole(words, COPIES, 1), whole(words, PROCESSES, 1)
    if count % copies or count == copies:
        raise Refused(f"num_processes: {count} cannot be divided into {copies} groups of at least 2 processes")
    return count // copies


def cpu(value: Any, words: Words) -> Any:
    return "cpu" if value is True else Several()


ACCELERATE = FileVocabulary(name="accelerate", meanings=Table("rlcore_compat:accelerate.toml"))

__all__ = ["ACCELERATE"]
