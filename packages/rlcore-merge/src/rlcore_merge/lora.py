"""Low-rank adapters: tensor names, scale, and the tensor of the base that each module changes.

LoRA (Hu et al. 2021, arXiv:2106.09685, §4.1): ``W' = W + s·B·A`` with ``s = α/r``; rsLoRA (Kalajdzievski 2023,
arXiv:2312.03732): ``s = α/√r``; DoRA (Liu et al. 2024, arXiv:2402.09353, eq. 5): ``W' = m · V / ‖V‖`` with
``V = W + s·B·A`` and the norm of each output's row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from math import sqrt
from typing import Any

from rlcore.console.wording import counted
from rlcore.errors import UserError, did_you_mean

from rlcore_merge import adapter_settings
from rlcore_merge.checkpoint import Adapter, Checkpoint
from rlcore_merge.lowrank import Delta, LowRank, Shifted
from rlcore_merge.tensors import Tensor, size_of

PARTS = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector")
PART = re.compile(rf"^(?P<module>.+)\.(?P<part>{'|'.join(PARTS)})(?P<rest>\..+)?$")
_SAVED = re.compile(r"\.modules_to_save\.[^.]+\.")
_FIX = "pass the base that the adapter was trained on: --base FOLDER"


def is_adapter_name(name: str) -> bool:
    """Whether the name is that of an adapter's tensor."""
    return PART.match(name) is not None or _SAVED.search(name) is not None


def plain(name: str) -> str:
    """A name without the prefixes and infixes that peft adds."""
    name = re.sub(r"^(base_model\.model\.|base_model\.)", "", name)
    name = _SAVED.sub(".", name).replace(".base_layer.", ".")
    if match := PART.match(name):
        rest = (match["rest"] or "").split(".")[1:]
        last = [rest[-1]] if rest and rest[-1] in {"weight", "bias"} else []
        if match["part"] in {"lora_A", "lora_B"} and not last:
            last = ["weight"]
        if match["part"] == "lora_magnitude_vector":
            last = []
        return ".".join([match["module"], match["part"], *last])
    return name


def separate(tensors: Mapping[str, Tensor], where: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split a state dict into the tensors of the base and those of the adapter.

    Raises:
        UserError: the state dict holds more than one adapter.
    """
    base: dict[str, Tensor] = {}
    adapter: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        into = adapter if is_adapter_name(name) else base
        short = plain(name)
        if ".original_module." in short:
            into, short = base, short.replace(".original_module.", ".")
        if short in into:
            raise UserError(
                "the checkpoint contains more than one adapter",
                found=f"{short} twice",
                where=where,
                fix="save one adapter, or merge them with peft first",
            )
        into[short] = tensor
    return base, adapter


def extract(checkpoint: Checkpoint, alpha: float | None) -> None:
    """Move low-rank matrices among the tensors of a checkpoint into its ``adapter``.

    Raises:
        UserError: α is unknown, or there is more than one adapter.
    """
    if not any(is_adapter_name(name) for name in checkpoint.tensors):
        return
    base, adapter = separate(checkpoint.tensors, str(checkpoint.folder))
    settings = adapter_settings.from_folder(checkpoint.folder, adapter, alpha)
    checkpoint.tensors = base
    checkpoint.buffers = frozenset(name for name in base if name in checkpoint.buffers)
    checkpoint.adapter = Adapter(settings=settings, tensors=adapter, where=str(checkpoint.folder))


def apply(base: Checkpoint, adapter: Adapter, *, allow_zero_delta: bool = False) -> dict[str, Tensor]:
    """The tensors of the base with the adapter applied. Changed tensors are computed when they are read.

    Args:
        base: the model that the adapter was trained on; untied embeddings are recorded in ``changes`` and ``notes``
        adapter: the adapter to merge
        allow_zero_delta: accept an adapter that changes nothing

    Raises:
        UserError: the adapter is of an unsupported type, has tensors that do not fit the base, or changes nothing.
    """
    adapter_settings.check_kind(adapter.settings, adapter.where)
    tensors = dict(base.tensors)
    modules: dict[str, dict[str, Tensor]] = defaultdict(dict)
    saved: dict[str, Tensor] = {}
    for name, tensor in adapter.tensors.items():
        if match := PART.match(name):
            modules[match["module"]][name[len(match["module"]) + 1 :]] = tensor
        else:
            saved[name] = tensor
    for name, tensor in saved.items():
        target = _find(name, base, tensors, adapter)
        _same_shape(name, tensor, tensors[target], adapter)
        tensors[target] = tensor
    empty, broken = [], []
    for module, parts in modules.items():
        target = _find(f"{module}.weight", base, tensors, adapter)
        delta = _delta(module, parts, tensors[target], adapter)
        if not delta.is_finite():
            broken.append(module)
        if delta.is_zero():
            empty.append(module)
        tensors[target] = LowRank(tensors[target], delta)
        if "lora_B.bias" in parts:
            bias = _find(f"{module}.bias", base, tensors, adapter)
            _same_shape(f"{module}.lora_B.bias", parts["lora_B.bias"], tensors[bias], adapter)
            tensors[bias] = Shifted(tensors[bias], parts["lora_B.bias"], delta.scale)
    if broken:
        raise UserError(
            "the adapter contains infinities or NaN",
            found=f"in {len(broken)} of {counted(len(modules), 'module')}, such as {broken[0]}",
            where=adapter.where,
            fix="use an earlier checkpoint: the training diverged",
        )
    if empty and not allow_zero_delta:
        raise UserError(
            "the adapter changes nothing",
            found=f"B·A is zero in {len(empty)} of {counted(len(modules), 'module')}, such as {empty[0]}",
            where=adapter.where,
            fix="use a trained checkpoint, or pass --allow-zero-delta if this is intended",
        )
    return tensors


def _find(name: str, base: Checkpoint, tensors: dict[str, Tensor], adapter: Adapter) -> str:
    """The name of a tensor in the base. A tied output layer that the base does not store is added."""
    for candidate in _spellings(name):
        if candidate in tensors:
            head_unchanged = candidate.endswith("embed_tokens.weight") and "lm_head.weight" not in tensors
            if head_unchanged and not adapter.settings.get("ensure_weight_tying") and tied(base):
                # The adapter was trained with an unchanged output layer.
                _untie(base)
                tensors["lm_head.weight"] = tensors[candidate]
            return candidate
    if name.endswith("lm_head.weight") and tied(base):
        embedding = next((key for key in base.tensors if key.endswith("embed_tokens.weight")), None)
        if embedding is not None:
            _untie(base)
            tensors[name] = base.tensors[embedding]
            return name
    near = did_you_mean(name, tensors)
    raise UserError(
        "the adapter changes a weight that is missing from the base",
        found=f"{name}" + (f"; {near}" if near else ""),
        where=f"{adapter.where}, base {base.folder}",
        fix=_FIX,
    )


def tied(checkpoint: Checkpoint) -> bool:
    """Whether the configuration ties the input and output embeddings."""
    from rlcore_merge.completeness import text_settings
    from rlcore_merge.other_files import read_config

    config = read_config(checkpoint.companions) or {}
    return bool({**text_settings(config), **config}.get("tie_word_embeddings", False))


def _untie(base: Checkpoint) -> None:
    if "tie_word_embeddings" not in base.changes:
        base.changes["tie_word_embeddings"] = False
        base.notes.append("the adapter changes only one of the tied embeddings: they are written as two tensors")


def _spellings(name: str) -> list[str]:
    """A name as written by different versions of transformers, which renamed vision-language models."""
    spellings = [name]
    for old, new in (
        ("model.language_model.", "model."),
        ("model.language_model.", "language_model.model."),
        ("language_model.model.", "model.language_model."),
        ("model.visual.", "visual."),
        ("model.vision_tower.", "vision_tower."),
        ("visual.", "model.visual."),
        ("vision_tower.", "model.vision_tower."),
        ("model.", "model.language_model."),
        ("lm_head.", "language_model.lm_head."),
    ):
        if name.startswith(old):
            spellings.append(new + name.removeprefix(old))
    return spellings


def _delta(module: str, parts: Mapping[str, Tensor], weight: Tensor, adapter: Adapter) -> Delta:
    embedding = "lora_embedding_A" in parts or "lora_embedding_B" in parts
    names = ("lora_embedding_A", "lora_embedding_B") if embedding else ("lora_A.weight", "lora_B.weight")
    missing = [name for name in names if name not in parts]
    if missing:
        raise UserError("the adapter is incomplete", found=f"{module} has no {missing[0]}", where=adapter.where)
    down, up = parts[names[0]], parts[names[1]]
    transposed = embedding or bool(adapter.settings.get("fan_in_fan_out"))
    rank, outputs = (factor.shape[0] if factor.shape else 0 for factor in (down, up))
    inputs = size_of(down) // max(rank, 1)
    wanted = (inputs, outputs) if transposed else (outputs, inputs)
    rows = weight.shape[0] if weight.shape else 0
    if not rank or (rows, size_of(weight) // max(rows, 1)) != wanted or rank != size_of(up) // max(outputs, 1):
        raise UserError(
            f"the adapter does not fit {module}",
            found=f"B {list(up.shape)} · A {list(down.shape)}, but the weight of the base is {list(weight.shape)}",
            where=adapter.where,
            fix=_FIX,
        )
    if weight.kind.name not in {"F64", "F32", "F16", "BF16"}:
        raise UserError(
            "the base is quantised",
            found=f"{module}.weight is {weight.kind.name}",
            where=adapter.where,
            fix="pass the unquantised base: --base FOLDER",
        )
    for name, part in parts.items():
        if not part.kind.floating:
            raise UserError(
                "the adapter is quantised", found=f"{module}.{name} is {part.kind.name}", where=adapter.where
            )
    magnitude = parts.get("lora_magnitude_vector")
    if magnitude is not None and size_of(magnitude) != rows:
        raise UserError(
            f"the adapter does not fit {module}",
            found=f"{size_of(magnitude)} magnitudes, but the weight of the base is {list(weight.shape)}",
            where=adapter.where,
            fix=_FIX,
        )
    if magnitude is not None and (embedding or len(weight.shape) != 2 or transposed):
        raise UserError(
            f"DoRA on {module} cannot be merged",
            found="DoRA is supported for plain linear layers only",
            where=adapter.where,
            fix="merge it with peft's merge_and_unload",
        )
    return Delta(
        down=down,
        up=up,
        scale=scale(module, rank, adapter),
        transposed=transposed,
        magnitude=magnitude,
    )


def scale(module: str, rank: int, adapter: Adapter) -> float:
    """``α/r``, or ``α/√r`` for rsLoRA, with per-module patterns applied.

    Raises:
        UserError: the rank in the settings differs from that of the tensors, or α is unknown.
    """
    settings = adapter.settings
    expected = _pattern(settings.get("rank_pattern"), module, settings.get("r"))
    if expected is not None and int(expected) != rank:
        raise UserError(
            f"the adapter settings contradict the tensors of {module}",
            found=f"r = {expected}, but A has {counted(rank, 'row')}",
            where=adapter.where,
        )
    alpha = _pattern(settings.get("alpha_pattern"), module, settings.get("lora_alpha"))
    if alpha is None:
        raise UserError(
            "the scale of the adapter is unknown",
            found="no lora_alpha in its settings",
            where=adapter.where,
            fix="pass the value from the training configuration: --lora-alpha NUMBER",
        )
    return float(alpha) / sqrt(rank) if settings.get("use_rslora") else float(alpha) / rank


def _pattern(patterns: Mapping[str, Any] | None, module: str, default: Any) -> Any:
    """As in peft: the value of the first key that matches the end of the module's path."""
    for key, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return default


def _same_shape(name: str, tensor: Tensor, weight: Tensor, adapter: Adapter) -> None:
    if tensor.shape != weight.shape:
        raise UserError(
            f"the adapter's {name} does not have the shape of the base's",
            found=f"{list(tensor.shape)}, expected {list(weight.shape)}",
            where=adapter.where,
            fix=_FIX,
        )
