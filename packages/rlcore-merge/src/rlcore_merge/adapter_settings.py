"""Read and check the settings of an adapter, with the keys of peft's ``adapter_config.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge.json_files import read_object
from rlcore_merge.source_files import inside
from rlcore_merge.tensors import Tensor

_UNSUPPORTED = ("target_parameters", "layer_replication", "trainable_token_indices", "alora_invocation_tokens")
"""Keys that, when set, make the model compute something other than a weight plus a low-rank product."""
_VARIANT = re.compile(r"use_\w+|\w+_config")
"""The naming pattern of the keys for peft's variants. It also matches variants of future versions."""
_NO_VARIANT = frozenset(
    {
        *("use_rslora", "use_dora"),  # supported
        *("loftq_config", "eva_config", "corda_config", "lora_ga_config"),  # initialisation only
        *("velora_config", "runtime_config"),  # training and device only
    }
)
_CHANGES_BASE = re.compile(r"(pissa|corda).*|olora|loftq|lora_ga", re.IGNORECASE)
"""Values of ``init_lora_weights`` for which peft subtracts the initial product of the matrices from the base."""


def from_folder(folder: Path, tensors: Mapping[str, Tensor], alpha: float | None) -> dict[str, Any]:
    """The settings of an adapter inside a training checkpoint, with the keys of ``adapter_config.json``.

    The settings are read from ``adapter_config.json`` or ``lora_train_meta.json`` next to the weights, or from
    ``lora_adapter/``.

    Raises:
        UserError: α is unknown.
    """
    for path in (
        folder / "adapter_config.json",
        folder / "lora_adapter" / "adapter_config.json",
        folder / "lora_train_meta.json",
    ):
        if path.is_file():
            settings = read_object(inside(path, folder))
            break
    else:
        settings = {}
    if alpha is not None:
        settings["lora_alpha"] = alpha
    if not settings.get("lora_alpha"):
        raise UserError(
            "the scale of the adapter is unknown",
            found="no lora_alpha: neither lora_train_meta.json nor adapter_config.json sets it",
            where=str(folder),
            fix="pass the value from the training configuration: --lora-alpha NUMBER",
        )
    ranks = sorted(
        tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name or name.endswith("lora_embedding_A")
    )
    settings.setdefault("r", max(set(ranks), key=ranks.count) if ranks else 0)
    check(settings, str(folder))
    return settings


def check(settings: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` if the rank, α or their patterns are invalid."""
    wrong = []
    for key, pattern, is_valid, wanted in (
        ("r", "rank_pattern", _is_rank, "an integer"),
        ("lora_alpha", "alpha_pattern", _is_alpha, "a finite number"),
    ):
        if settings.get(key) is not None and not is_valid(settings[key]):
            wrong.append(f"{key} is {settings[key]!r}, expected {wanted}")
        patterns = settings.get(pattern) or {}
        if not isinstance(patterns, Mapping):
            wrong.append(f"{pattern} is {patterns!r}, expected a mapping")
            continue
        for expression, value in patterns.items():
            if not is_valid(value):
                wrong.append(f"{pattern} of {expression} is {value!r}, expected {wanted}")
            try:
                re.compile(expression)
            except re.error as error:
                wrong.append(f"{pattern} contains {expression!r}, which is not a valid regular expression: {error}")
    if not isinstance(settings.get("peft_type"), str | None):
        wrong.append(f"peft_type is {settings['peft_type']!r}, expected a string")
    if wrong:
        raise UserError(
            "the adapter settings are invalid",
            found="; ".join(wrong[:3]),
            where=where,
            fix="restore adapter_config.json as written by peft",
        )


def check_kind(settings: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` if the adapter is more than low-rank matrices with a scale and magnitudes."""
    kind = settings.get("peft_type", "LORA")
    wrong = [] if kind in {"LORA", "PeftType.LORA", None} else [f"peft_type {kind}"]
    wrong += [
        key
        for key, value in settings.items()
        if value and (key in _UNSUPPORTED or (_VARIANT.fullmatch(key) and key not in _NO_VARIANT))
    ]
    if wrong:
        raise UserError(
            "this type of adapter cannot be merged",
            found=", ".join(wrong),
            where=where,
            fix="merge it with peft's merge_and_unload, or serve it unmerged if peft cannot merge it either",
        )


def check_base_unmodified(settings: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` if peft modified the base at initialisation: the matrices fit only the modified base."""
    initialisation = settings.get("init_lora_weights")
    if isinstance(initialisation, str) and _CHANGES_BASE.fullmatch(initialisation):
        raise UserError(
            "the adapter belongs to a base that peft modified at initialisation",
            found=f"init_lora_weights is {initialisation!r}, which subtracts the initial adapter from the base",
            where=where,
            fix="save it again with peft's path_initial_model_for_weight_conversion, merge it with peft's "
            "merge_and_unload, or, if the modified base was saved, pass it as --base and set "
            '"init_lora_weights": true in adapter_config.json',
        )


def _is_rank(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_alpha(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)
