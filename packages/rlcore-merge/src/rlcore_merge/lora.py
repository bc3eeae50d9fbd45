"""Low-rank adapters: tensor names, scale, and the tensors of the base with the adapter applied.

LoRA (Hu et al. 2021, arXiv:2106.09685, §4.1): ``W' = W + s·B·A`` with ``s = α/r``; rsLoRA (Kalajdzievski 2023,
arXiv:2312.03732): ``s = α/√r``; DoRA (Liu et al. 2024, arXiv:2402.09353, eq. 5): ``W' = m · V / ‖V‖`` with
``V = W + s·B·A`` and the norm of each output's row. A range is computed in float32 when it is read.

Legend: ``_RO`` rows of a weight by the rest of its axes, ``_RI`` rank by inputs, ``_OR`` outputs by rank.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import frexp, prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from rlcore.console.wording import counted
from rlcore.errors import UserError, did_you_mean
from rlcore.models.fingerprint import Described
from rlcore.models.fingerprint import fingerprint as fingerprint_of

from rlcore_merge.checkpoint import ALPHA, PART, Adapter, Checkpoint, read_config
from rlcore_merge.model_config import text_settings
from rlcore_merge.tensors import KINDS, Array, Kind, Shape, Stored, Tensor, output_kind, ranges, size_of, to_float32

Float32 = npt.NDArray[np.float32]

_FIX = "pass the base that the adapter was trained on: --base FOLDER"


def apply(base: Checkpoint, adapter: Adapter, *, allow_zero_delta: bool = False) -> dict[str, Tensor]:
    """The tensors of the base with the adapter applied. Changed tensors are computed when they are read.

    Args:
        base: the model that the adapter was trained on; untied embeddings are recorded in ``changes`` and ``notes``
        adapter: the adapter to merge
        allow_zero_delta: accept an adapter that changes nothing

    Raises:
        UserError: the adapter is of an unsupported type, has tensors that do not fit the base, or changes nothing.
    """
    adapter.check_kind()
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
        tensors[target] = Changed(tensors[target], delta)
        if "lora_B.bias" in parts:
            bias = _find(f"{module}.bias", base, tensors, adapter)
            _same_shape(f"{module}.lora_B.bias", parts["lora_B.bias"], tensors[bias], adapter)
            tensors[bias] = Changed(tensors[bias], BiasDelta(parts["lora_B.bias"], delta.scale))
    if broken:
        found = f"in {len(broken)} of {counted(len(modules), 'module')}, such as {broken[0]}"
        fix = "use an earlier checkpoint: the training diverged"
        raise UserError("the adapter contains infinities or NaN", found=found, where=adapter.where, fix=fix)
    if empty and not allow_zero_delta:
        found = f"B·A is zero in {len(empty)} of {counted(len(modules), 'module')}, such as {empty[0]}"
        fix = "use a trained checkpoint, or pass --allow-zero-delta if this is intended"
        raise UserError("the adapter changes nothing", found=found, where=adapter.where, fix=fix)
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
    message = "the adapter changes a weight that is missing from the base"
    found = f"{name}" + (f"; {near}" if near else "")
    raise UserError(message, found=found, where=f"{adapter.where}, base {base.folder}", fix=_FIX)


def tied(checkpoint: Checkpoint) -> bool:
    """Whether the configuration ties the input and output embeddings."""
    config = read_config(checkpoint.companions) or {}
    return bool({**text_settings(config), **config}.get("tie_word_embeddings", False))


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The fingerprint of a base model in any layout, see `rlcore.models.fingerprint`."""
    return fingerprint_of({name: _described(tensor) for name, tensor in tensors.items()})


def _described(tensor: Tensor) -> Described:
    def read(start: int, count: int) -> bytes:
        return tensor.read(start, count).tobytes()

    return Described(kind=tensor.kind.name, element_bytes=tensor.kind.size, shape=tuple(tensor.shape), read=read)


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
    magnitude = parts.get("lora_magnitude_vector")
    if not rank or (rows, size_of(weight) // max(rows, 1)) != wanted or rank != size_of(up) // max(outputs, 1):
        raise _misfit(module, f"B {list(up.shape)} · A {list(down.shape)}", weight, adapter)
    if weight.kind.name not in {"F64", "F32", "F16", "BF16"}:
        message = "the base is quantised"
        fix = "pass the unquantised base: --base FOLDER"
        raise UserError(message, found=f"{module}.weight is {weight.kind.name}", where=adapter.where, fix=fix)
    for name, part in parts.items():
        if not part.kind.floating:
            found = f"{module}.{name} is {part.kind.name}"
            raise UserError("the adapter is quantised", found=found, where=adapter.where)
    if magnitude is not None and size_of(magnitude) != rows:
        raise _misfit(module, f"{size_of(magnitude)} magnitudes", weight, adapter)
    if magnitude is not None and (embedding or len(weight.shape) != 2 or transposed):
        message = f"DoRA on {module} cannot be merged"
        fix = "merge it with peft's merge_and_unload"
        raise UserError(message, found="DoRA is supported for plain linear layers only", where=adapter.where, fix=fix)
    return Delta(down, up, scale(module, rank, adapter), transposed, magnitude)


def _misfit(module: str, given: str, weight: Tensor, adapter: Adapter) -> UserError:
    found = f"{given}, but the weight of the base is {list(weight.shape)}"
    return UserError(f"the adapter does not fit {module}", found=found, where=adapter.where, fix=_FIX)


def scale(module: str, rank: int, adapter: Adapter) -> float:
    """``α/r``, or ``α/√r`` for rsLoRA, with per-module patterns applied.

    Raises:
        UserError: the rank in the settings differs from that of the tensors, or α is unknown.
    """
    settings = adapter.settings
    expected = _pattern(settings.get("rank_pattern"), module, settings.get("r"))
    if expected is not None and int(expected) != rank:
        found = f"r = {expected}, but A has {counted(rank, 'row')}"
        raise UserError(f"the adapter settings contradict the tensors of {module}", found=found, where=adapter.where)
    alpha = _pattern(settings.get("alpha_pattern"), module, settings.get("lora_alpha"))
    if alpha is None:
        raise UserError(
            "the scale of the adapter is unknown", found="no lora_alpha in its settings", where=adapter.where, fix=ALPHA
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
        message = f"the adapter's {name} does not have the shape of the base's"
        found = f"{list(tensor.shape)}, expected {list(weight.shape)}"
        raise UserError(message, found=found, where=adapter.where, fix=_FIX)


def vector_of(tensor: Tensor) -> Float32:
    """All elements of a small tensor as a float32 vector."""
    return to_float32(tensor.read(0, size_of(tensor)), tensor.kind)


def _parts(tensor: Tensor) -> Iterator[Float32]:
    return (to_float32(tensor.read(*part), tensor.kind) for part in ranges(tensor))


@dataclass(frozen=True, slots=True)
class Delta:
    """The product that an adapter adds to a weight: ``scale · B · A``, transposed for (input, output) weights."""

    down: Tensor
    """A: rank by inputs."""
    up: Tensor
    """B: outputs by rank."""
    scale: float
    transposed: bool
    magnitude: Tensor | None = None
    """DoRA's m, one value per output."""

    def is_zero(self) -> bool:
        """Whether a factor is all zeros, as in an untrained adapter."""
        return not self.scale or not all(any(map(np.any, _parts(factor))) for factor in (self.up, self.down))

    def is_finite(self) -> bool:
        """Whether all factors are free of infinities and NaN."""
        return all(np.isfinite(part).all() for factor in self.factors() for part in _parts(factor))

    def factors(self) -> list[Tensor]:
        """The tensors of the adapter."""
        return [self.down, self.up, *([self.magnitude] if self.magnitude is not None else [])]

    def apply(self, weight_RO: Float32, begin: int, end: int) -> Float32:
        """Rows of the weight with the scaled product added, and with DoRA's magnitudes."""
        changed_RO = self._rows(begin, end)
        changed_RO += weight_RO
        if self.magnitude is not None:
            norms = np.linalg.norm(changed_RO, axis=1)
            changed_RO *= (vector_of(self.magnitude)[begin:end] / norms)[:, None]
        return changed_RO

    def _rows(self, begin: int, end: int) -> Float32:
        rank, scale = self.down.shape[0], np.float32(self.scale)
        inputs = size_of(self.down) // rank
        down_RI = vector_of(self.down).reshape(rank, inputs)
        product: Float32
        if self.transposed:
            up_OR = vector_of(self.up).reshape(-1, rank)
            product = np.ascontiguousarray(down_RI[:, begin:end].T) @ up_OR.T
        else:
            part_OR = to_float32(self.up.read(begin * rank, (end - begin) * rank), self.up.kind).reshape(-1, rank)
            if frexp(scale)[0] == 0.5:  # scaling by a power of two is exact: scale the smaller factor
                part_OR, scale = part_OR * scale, np.float32(1)
            product = part_OR @ down_RI
        if scale != 1:
            product *= scale
        return product


@dataclass(frozen=True, slots=True)
class BiasDelta:
    """The scaled bias that an adapter adds to a bias."""

    difference: Tensor
    scale: float

    def factors(self) -> list[Tensor]:
        """See `Delta.factors`."""
        return [self.difference]

    def apply(self, bias_RO: Float32, begin: int, end: int) -> Float32:
        """See `Delta.apply`."""
        difference_E = to_float32(self.difference.read(begin, end - begin), self.difference.kind)
        changed_RO: Float32 = bias_RO + (difference_E * np.float32(self.scale)).reshape(bias_RO.shape)
        return changed_RO


@dataclass(frozen=True, slots=True)
class Changed:
    """A weight or bias with an adapter applied. It is read as float32 and written in the kind of the original."""

    original: Tensor
    delta: Delta | BiasDelta

    @property
    def kind(self) -> Kind:
        """Always float32."""
        return KINDS["F32"]

    @property
    def output_kind(self) -> Kind:
        """See `Tensor`."""
        return output_kind(self.original)

    @property
    def shape(self) -> Shape:
        """Shape of the original."""
        return self.original.shape

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`. Full rows are computed."""
        row = prod(self.shape[1:])
        begin, end = start // row, -(-(start + count) // row)
        stored = self.original.read(begin * row, (end - begin) * row)
        changed_RO = self.delta.apply(to_float32(stored, self.original.kind).reshape(-1, row), begin, end)
        flat: npt.NDArray[Any] = changed_RO.reshape(-1)
        return flat[start - begin * row : start - begin * row + count]

    def leaves(self) -> Iterator[Stored]:
        """See `Tensor.leaves`."""
        for tensor in (self.original, *self.delta.factors()):
            yield from tensor.leaves()
