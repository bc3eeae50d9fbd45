"""The settings of an adapter, in the words of peft's ``adapter_config.json``: found in a folder, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge.json_files import read_object
from rlcore_merge.tensors import Tensor

_OTHERWISE = ("target_parameters", "layer_replication", "trainable_token_indices", "alora_invocation_tokens")
"""Keys that, where they are set, let the model compute something else than a weight with a low-rank difference."""
_VARIANT = re.compile(r"use_\w+|\w+_config")
"""How peft names the keys of its variants. Those of a version that is not known yet count too."""
_NO_VARIANT = frozenset(
    {
        *("use_rslora", "use_dora"),  # computed here
        *("loftq_config", "eva_config", "corda_config", "lora_ga_config"),  # how the matrices began
        *("velora_config", "runtime_config"),  # how they were trained, and on what device
    }
)
_CHANGES_BASE = re.compile(r"(pissa|corda).*|olora|loftq|lora_ga", re.IGNORECASE)
"""Values of ``init_lora_weights`` with which peft takes out of the base what the matrices begin with."""


def of_folder(folder: Path, tensors: Mapping[str, Tensor], alpha: float | None) -> dict[str, Any]:
    """The settings of an adapter inside a training checkpoint, in the words of ``adapter_config.json``.

    Read from ``adapter_config.json`` or ``lora_train_meta.json`` beside the weights or in ``lora_adapter/``.

    Raises:
        UserError: nothing says α.
    """
    for path in (
        folder / "adapter_config.json",
        folder / "lora_adapter" / "adapter_config.json",
        folder / "lora_train_meta.json",
    ):
        if path.is_file():
            settings = read_object(path)
            break
    else:
        settings = {}
    if alpha is not None:
        settings["lora_alpha"] = alpha
    if not settings.get("lora_alpha"):
        raise UserError(
            "the scale of the adapter is not known",
            found="no lora_alpha: there is no lora_train_meta.json and no adapter_config.json",
            where=str(folder),
            mend="give the value of the training's configuration: --lora-alpha NUMBER",
        )
    ranks = sorted(
        tensor.shape[0] for name, tensor in tensors.items() if ".lora_A." in name or name.endswith("lora_embedding_A")
    )
    settings.setdefault("r", max(set(ranks), key=ranks.count) if ranks else 0)
    check(settings, str(folder))
    return settings


def check(settings: Mapping[str, Any], where: str) -> None:
    """Raises `UserError` where ranks, α or their patterns are not what peft writes."""
    wrong = []
    for key, pattern, is_one, wanted in (
        ("r", "rank_pattern", _is_rank, "a whole number"),
        ("lora_alpha", "alpha_pattern", _is_alpha, "a finite number"),
    ):
        if settings.get(key) is not None and not is_one(settings[key]):
            wrong.append(f"{key} is {settings[key]!r} and not {wanted}")
        patterns = settings.get(pattern) or {}
        if not isinstance(patterns, Mapping):
            wrong.append(f"{pattern} is {patterns!r} and not a table")
            continue
        for expression, value in patterns.items():
            if not is_one(value):
                wrong.append(f"{pattern} of {expression} is {value!r} and not {wanted}")
            try:
                re.compile(expression)
            except re.error as error:
                wrong.append(f"{pattern} has {expression!r}, no regular expression: {error}")
    if not isinstance(settings.get("peft_type"), str | None):
        wrong.append(f"peft_type is {settings['peft_type']!r}")
    if wrong:
        raise UserError(
            "the settings of the adapter cannot be used",
            found="; ".join(wrong[:3]),
            where=where,
            mend="take adapter_config.json as peft wrote it",
        )


def check_kind(settings: Mapping[str, Any], where: str) -> None:
    """Raises `UserError` where the adapter is more than low-rank matrices, their scale and their magnitudes."""
    kind = settings.get("peft_type", "LORA")
    wrong = [] if kind in {"LORA", "PeftType.LORA", None} else [f"peft_type {kind}"]
    wrong += [
        key
        for key, value in settings.items()
        if value and (key in _OTHERWISE or (_VARIANT.fullmatch(key) and key not in _NO_VARIANT))
    ]
    if wrong:
        raise UserError(
            "this kind of adapter cannot be merged",
            found=", ".join(wrong),
            where=where,
            mend="merge it with peft's merge_and_unload, or serve it unmerged where peft cannot either",
        )


def check_base_is_whole(settings: Mapping[str, Any], where: str) -> None:
    """Raises `UserError` where peft changed the base when the training began: the matrices add to that one alone."""
    begun = settings.get("init_lora_weights")
    if isinstance(begun, str) and _CHANGES_BASE.fullmatch(begun):
        raise UserError(
            "the adapter belongs to a base that was changed before the training",
            found=f"init_lora_weights is {begun!r}, which takes out of the base what the adapter begins with",
            where=where,
            mend="save it again with peft's path_initial_model_for_weight_conversion, merge it with peft's "
            "merge_and_unload, or, where the changed base was saved, give it as --base and write "
            '"init_lora_weights": true into adapter_config.json',
        )


def _is_rank(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_alpha(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)
