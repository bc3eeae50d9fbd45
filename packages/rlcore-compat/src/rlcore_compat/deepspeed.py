"""DeepSpeed's configuration files. The strategy ``fsdp2`` divides what ZeRO divides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.json_files import read_json

from rlcore_compat.tables import Refused, Several, Words

STAGES: Mapping[int, Mapping[str, Any]] = {
    1: {"strategy.id": "fsdp2", "strategy.reshard_after_forward": False},
    2: {"strategy.id": "fsdp2", "strategy.reshard_after_forward": False},
    3: {"strategy.id": "fsdp2", "strategy.reshard_after_forward": True},
}
"""What each stage of ZeRO sets. Stage 1 divides less than stage 2, with the same result."""
LARGEST_FILE = 1_000_000
"""Limit of a file in bytes."""
IN_TRAINING_FILE = ("betas", "lr", "total_num_steps", "warmup_max_lr", "warmup_num_steps", "weight_decay")
"""Parameters of ``optimizer`` and ``scheduler`` that the training file sets."""


def zero_stage(value: Any, words: Words) -> Several:
    """The strategy for a stage of ZeRO."""
    if value == 0:
        raise Refused("stage 0 divides nothing: strategy.id=ddp, without DeepSpeed")
    if not isinstance(value, int) or isinstance(value, bool) or value not in STAGES:
        raise Refused("the stage of ZeRO is 1, 2 or 3")
    return Several(STAGES[value])


def zero_optimization(value: Any, words: Words) -> Several:
    """The strategy for DeepSpeed's table of ZeRO. Without a stage, it is 0."""
    if not isinstance(value, Mapping):
        raise Refused("must be a table")
    return zero_stage(value.get("stage", 0), words)


def file(value: Any, words: Words) -> Several:
    """The strategy for a file, whose path is relative to the working directory, or for its contents."""
    contents = value if isinstance(value, Mapping) else _contents(Path(str(value)).expanduser())
    for table in ("optimizer", "scheduler"):
        _check_left_to_training_file(table, contents.get(table))
    half = contents.get("fp16")
    if isinstance(half, Mapping) and half.get("enabled") is True:
        raise Refused("fp16: loss scaling for float16 is not supported: bf16")
    return zero_optimization(contents.get("zero_optimization", {}), words)


def _contents(path: Path) -> Mapping[str, Any]:
    try:
        contents = read_json(path, limit=LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise Refused(f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(contents, Mapping):
        raise Refused("the file must contain a JSON object")
    return contents


def _check_left_to_training_file(table: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        return
    if table == "optimizer" and str(value.get("type", "AdamW")).lower() not in ("adam", "adamw"):
        raise Refused(f"optimizer.type: {value['type']}: the optimiser is AdamW")
    given = value.get("params")
    for name, one in given.items() if isinstance(given, Mapping) else ():
        if name in IN_TRAINING_FILE and one != "auto":
            raise Refused(f'{table}.params.{name}: {one} belongs in the training file: give "auto"')
