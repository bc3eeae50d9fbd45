"""Read DeepSpeed ZeRO folders, stages 1 to 3: float32 master weights, partitioned into one vector per process.

Stages 1 and 2: the parameters of a group are concatenated into one vector, which is split into equal parts and padded
at the end. Stage 3: each parameter is split into parts of ``ceil(elements / processes)``, and the parts of each process
are concatenated. The model file holds names and shapes (``param_shapes``), buffers and frozen parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge.checkpoint import Checkpoint, Request, config_folders, extract, inside
from rlcore_merge.sources.pickles import DAMAGED, Object, Strided, whole_number, whole_numbers
from rlcore_merge.sources.sharding import Assembled, Piece
from rlcore_merge.sources.torch_files import TorchFile, absent
from rlcore_merge.tensors import KINDS, MappedFile, Shape, Stored, Tensor

_OPTIMISER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt")
_FIX = "copy the files of all nodes into one folder, or use an earlier checkpoint"


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the tables of contents and locate each parameter in the vectors.

    Raises:
        UserError: a file is missing or damaged, or the processes disagree.
    """
    paths = _optimiser_files(folder)
    files = [TorchFile(MappedFile(inside(path, folder))) for path in paths]
    states = [_state(file, path, len(paths)) for file, path in zip(files, paths, strict=True)]
    try:
        stage = whole_number(_number(states[0].get("zero_stage")))
        model_paths = _model_files(folder, stage, len(paths))
        models = [TorchFile(MappedFile(inside(path, folder))) for path in model_paths]
        groups = [
            {name: whole_numbers(shape) for name, shape in dict(group).items()}
            for group in models[0].content["param_shapes"]
        ]
        vectors = [_vectors(file, state, stage) for file, state in zip(files, states, strict=True)]
        tensors = (_by_parameter if stage == 3 else _by_group)(groups, vectors)
        buffers = set(models[0].content.get("buffer_names") or ())
        module = models[0].content["module"] or {}
        # In stage 3 the parameters in this file are empty; buffers are complete.
        for name in buffers & set(module):
            tensors[name] = models[0].stored(module[name])
        _frozen(tensors, models, stage)
        _shared(tensors, models[0].content.get("shared_params"))
    except DAMAGED as error:
        found = f"{type(error).__name__}: {error}"
        message = "the checkpoint files do not match each other"
        raise UserError(message, found=found, where=str(folder), fix=_FIX) from None
    order = {name: place for place, name in enumerate(module)}
    tensors = dict(sorted(tensors.items(), key=lambda item: order.get(item[0], len(order))))
    checkpoint = Checkpoint(
        layout="deepspeed-zero",
        folder=folder,
        tensors=tensors,
        companions=config_folders(folder, request.base),
        inputs=[*model_paths, *paths],
        buffers=frozenset(buffers),
        identity={file.file.path.name: file.identity for file in [*files, *models]},
    )
    return extract(checkpoint, request.alpha)


def _optimiser_files(folder: Path) -> list[Path]:
    found: dict[int, Path] = {}
    for path in sorted(folder.glob("*_optim_states.pt")):
        if match := _OPTIMISER.fullmatch(path.name):
            if int(match[2]):
                message = "DeepSpeed checkpoints with model parallelism are not supported"
                raise UserError(message, found=path.name, where=str(folder))
            found[int(match[1])] = path
    if not found:
        raise UserError(
            "the optimiser files have unknown names",
            found=", ".join(sorted(path.name for path in folder.glob("*_optim_states.pt"))[:3]),
            where=str(folder),
            fix="restore DeepSpeed's names, such as zero_pp_rank_0_mp_rank_00_optim_states.pt",
        )
    missing = [rank for rank in range(max(found)) if rank not in found]
    if missing:
        name = found[max(found)].name.replace(f"rank_{max(found)}_mp", f"rank_{missing[0]}_mp")
        raise UserError("the file of a process is missing", found=f"no {name}", where=str(folder), fix=_FIX)
    return [found[rank] for rank in sorted(found)]


def _model_files(folder: Path, stage: int, world: int) -> list[Path]:
    names = ["mp_rank_00_model_states.pt"]
    if stage >= 3:
        names = [f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" for rank in range(world)]
    for name in names:
        if not (folder / name).is_file():
            raise UserError("a checkpoint file is missing", found=absent(name, folder), where=str(folder), fix=_FIX)
    return [folder / name for name in names]


def _state(file: TorchFile, path: Path, world: int) -> Mapping[str, Any]:
    try:
        state: Mapping[str, Any] = file.content["optimizer_state_dict"]
        count = state["partition_count"]
        counts = whole_numbers(count if isinstance(count, list | tuple) else [count]) or (0,)
    except DAMAGED:
        fix = "pass a checkpoint saved with ZeRO"
        raise UserError("the file is not a ZeRO optimiser state", where=str(path), fix=fix) from None
    if max(counts) != world:
        message = f"{max(counts)} processes saved this checkpoint"
        raise UserError(message, found=f"files of {world}", where=str(path.parent), fix=_FIX)
    return state


def _number(value: Any) -> Any:
    return value.arguments[0] if isinstance(value, Object) else value


def _vectors(file: TorchFile, state: Mapping[str, Any], stage: int) -> list[Stored]:
    key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
    vectors: list[Strided] = state[key]
    return [file.stored(vector).reshaped((prod(vector.shape),)) for vector in vectors]


def _by_group(groups: Sequence[Mapping[str, Shape]], vectors: Sequence[Sequence[Stored]]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for number, shapes in enumerate(groups):
        parts = [of_process[number] for of_process in vectors]
        at = 0
        for name, shape in shapes.items():
            tensors[name] = _from_ranges(name, shape, _cut(parts, at, prod(shape)))
            at += prod(shape)
    return tensors


def _cut(parts: Sequence[Stored], start: int, count: int) -> list[Stored]:
    """A range of concatenated vectors."""
    found, at = [], 0
    for part in parts:
        begin, end = max(start, at), min(start + count, at + part.shape[0])
        if begin < end:
            found.append(part.part(begin - at, end - begin))
        at += part.shape[0]
    return found


def _by_parameter(groups: Sequence[Mapping[str, Shape]], vectors: Sequence[Sequence[Stored]]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    world, at = len(vectors), 0
    for name, shape in ((name, shape) for group in groups for name, shape in group.items()):
        each = -(-prod(shape) // world)
        ranges, left = [], prod(shape)
        for of_process in vectors:
            ranges += _cut(of_process, at, min(each, left))
            left -= min(each, left)
        tensors[name] = _from_ranges(name, shape, ranges)
        at += each
    return tensors


def _from_ranges(name: str, shape: Shape, ranges: Sequence[Stored]) -> Tensor:
    held = sum(part.shape[0] for part in ranges)
    if held != prod(shape):
        raise ValueError(f"{name} has {held:,} of {prod(shape):,} elements")
    if len(ranges) == 1:
        return ranges[0].reshaped(shape)
    pieces, at = [], 0
    for part in ranges:
        pieces.append(Piece.of((at,), part))
        at += part.shape[0]
    return Assembled(ranges[0].kind if ranges else KINDS["F32"], shape, pieces, tiled=(at,))


def _frozen(tensors: dict[str, Tensor], models: Sequence[TorchFile], stage: int) -> None:
    shapes = models[0].content.get("frozen_param_shapes") or {}
    for name, shape in shapes.items():
        parts = [model.stored(model.content["frozen_param_fragments"][name]) for model in models]
        if stage < 3:
            tensors[name] = parts[0]
            continue
        shape = whole_numbers(shape)
        left, ranges = prod(shape), []
        for part in parts:
            ranges.append(part.reshaped((prod(part.shape),)).part(0, min(left, prod(part.shape))))
            left -= min(left, prod(part.shape))
        tensors[name] = _from_ranges(name, shape, ranges)


def _shared(tensors: dict[str, Tensor], pairs: Any) -> None:
    items = pairs.items() if isinstance(pairs, Mapping) else [tuple(pair) for pair in pairs or ()]
    for name, source in items:
        if source in tensors:
            tensors.setdefault(name, tensors[source])
