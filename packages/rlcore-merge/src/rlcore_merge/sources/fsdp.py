"""Read verl's FSDP folders: ``model_world_size_W_rank_r.pt``, one file per process.

A file maps names to the values of its process: a ``DTensor`` (FSDP2, and FSDP1 on a device mesh), a ``ShardedTensor``
(FSDP1), or a plain tensor, which is replicated on every process. ``fsdp_config.json`` is optional, and any mesh is
supported. If several processes hold the same box, their contents are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from rlcore.errors import UserError

from rlcore_merge import lora
from rlcore_merge.checkpoint import Checkpoint, Request, config_folders, plain_names
from rlcore_merge.pickles import Distributed, Record, Strided
from rlcore_merge.provenance import identity
from rlcore_merge.sharding import box, mesh_of, placements_of
from rlcore_merge.tensors import Assembled, MappedFile, Piece, Shape, Stored, Tensor, size_of
from rlcore_merge.torch_files import TorchFile

FILE = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_FIX = "save the checkpoint again, or use an earlier one"


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the table of contents of each file and assemble the tensors.

    Raises:
        UserError: a file is missing or damaged, or the processes disagree.
    """
    paths = _files(folder)
    files = [_open(path) for path in paths]
    tensors: dict[str, Tensor] = {}
    buffers = set()
    names = list(files[0].content)
    for path, file in zip(paths, files, strict=True):
        _same_names(names, file.content, paths[0], path)
    distributed = any(isinstance(value, Distributed) for value in files[0].content.values())
    for name in names:
        values = [file.content[name] for file in files]
        if not any(isinstance(value, Strided | Distributed) for value in values):
            continue
        plain = isinstance(values[0], Strided)
        tensors[name] = _tensor(name, values, files, paths)
        if plain and distributed:
            buffers.add(name)
    plain_of = dict(zip(tensors, plain_names(tensors, str(folder)), strict=True))
    checkpoint = Checkpoint(
        layout="verl-fsdp",
        folder=folder,
        tensors={plain_of[name]: tensor for name, tensor in tensors.items()},
        companions=config_folders(folder, request.base, "huggingface"),
        inputs=paths,
        buffers=frozenset(plain_of[name] for name in buffers),
        identity={path.name: identity(file) for path, file in zip(paths, files, strict=True)},
    )
    lora.extract(checkpoint, request.alpha)
    return checkpoint


def _files(folder: Path) -> list[Path]:
    ranks: dict[int, dict[int, Path]] = {}
    for path in folder.glob("model_world_size_*_rank_*.pt"):
        if match := FILE.fullmatch(path.name):
            ranks.setdefault(int(match[1]), {})[int(match[2])] = path
    world = _configured_world(folder)
    if len(ranks) > 1 or (world is not None and world not in ranks):
        found = ", ".join(f"{len(files)} files of world size {size}" for size, files in sorted(ranks.items()))
        raise UserError(
            "the files come from runs with different numbers of processes",
            found=found + (f"; fsdp_config.json says {world}" if world is not None else ""),
            where=str(folder),
            fix="remove the files of the other run",
        )
    size, files = next(iter(ranks.items()))
    missing = [f"model_world_size_{size}_rank_{rank}.pt" for rank in range(size) if rank not in files]
    if missing:
        raise UserError(
            f"{len(missing)} of the {size} processes' files {'is' if len(missing) == 1 else 'are'} missing",
            found=f"no {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""),
            where=str(folder),
            fix="copy the files of all nodes into one folder",
        )
    return [files[rank] for rank in range(size)]


def _configured_world(folder: Path) -> int | None:
    path = folder / "fsdp_config.json"
    if not path.is_file():
        return None
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["world_size"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            "fsdp_config.json cannot be read",
            found=repr(error),
            where=str(path),
            fix="remove it: the file names contain the number of processes",
        ) from None


def _open(path: Path) -> TorchFile:
    file = TorchFile(MappedFile(path))
    if not isinstance(file.content, Mapping):
        found = type(file.content).__name__
        raise UserError("the file is not a state dict", found=found, where=str(path), fix=_FIX)
    return file


def _same_names(names: Sequence[str], content: Mapping[str, Any], first: Path, path: Path) -> None:
    if content.keys() != set(names):
        difference = sorted(content.keys() ^ set(names))
        has = path.name if difference[0] in content else first.name
        raise UserError(
            "the processes disagree about the names of the tensors",
            found=f"{difference[0]} is only in {has}" + (f", and {len(difference) - 1} more" if difference[1:] else ""),
            where=str(path),
            fix="merge files of one run and one step; pipeline parallelism is not supported",
        )


def _tensor(name: str, values: Sequence[Any], files: Sequence[TorchFile], paths: Sequence[Path]) -> Tensor:
    whole: Shape | None = None
    kind = None
    boxes: dict[tuple[Shape, Shape], tuple[Stored, Path]] = {}
    for rank, (value, file, path) in enumerate(zip(values, files, paths, strict=True)):
        shape, held = _held(name, value, file, rank, str(path))
        if whole not in (None, shape):
            raise UserError(
                f"the processes disagree about the shape of {name}",
                found=f"{list(whole or ())} in {paths[0].name}, {list(shape)} in {path.name}",
                where=str(path.parent),
                fix=_FIX,
            )
        whole = shape
        for offsets, stored in held:
            if kind not in (None, stored.kind):
                raise UserError(f"the processes disagree about the dtype of {name}", where=str(path), fix=_FIX)
            kind = stored.kind
            key = (offsets, stored.shape)
            if key not in boxes:
                boxes[key] = (stored, path)
            elif not _equal(boxes[key][0], stored):
                raise UserError(
                    f"two processes hold different values of {name}",
                    found=f"{boxes[key][1].name} and {path.name} differ",
                    where=str(path.parent),
                    fix=_FIX,
                )
    assert whole is not None
    pieces = [
        Piece(offsets, stored) for (offsets, _), (stored, _) in boxes.items() if size_of(stored) or not prod(whole)
    ]
    covered = sum(prod(piece.block.shape) for piece in pieces)
    if covered != prod(whole) or kind is None:
        raise UserError(
            f"the files do not contain all of {name}",
            found=f"{covered:,} of {prod(whole):,} elements of the shape {list(whole)}",
            where=str(paths[0].parent),
            fix=_FIX,
        )
    if len(pieces) == 1 and isinstance(pieces[0].block, Stored):
        return pieces[0].block
    return Assembled(kind, whole, sorted(pieces, key=lambda piece: piece.offsets))


def _held(name: str, value: Any, file: TorchFile, rank: int, where: str) -> tuple[Shape, list[tuple[Shape, Stored]]]:
    """The full shape of a tensor and the boxes of it that a process holds."""
    if isinstance(value, Strided):
        return value.shape, [((0,) * len(value.shape), file.stored(value))]
    try:
        if isinstance(value, Distributed) and value.name == "DTensor":
            return value.shape, [_dtensor_box(name, value, file, rank, where)]
        if isinstance(value, Distributed):
            return value.shape, list(_sharded_boxes(value, file))
    except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise UserError(f"{name} cannot be read", found=str(error), where=where, fix=_FIX) from None
    found = f"{type(value).__name__}, but other processes have a tensor"
    raise UserError(f"{name} cannot be read", found=found, where=where, fix=_FIX)


def _dtensor_box(name: str, value: Distributed, file: TorchFile, rank: int, where: str) -> tuple[Shape, Stored]:
    state = value.state[1] if isinstance(value.state, tuple) else value.state
    spec, local = state["_spec"], state["_local_tensor"]

    def read_ranks(tensor: Strided) -> np.ndarray[Any, Any]:
        return file.stored(tensor).array()

    mesh = mesh_of(spec.get("mesh"), rank, read_ranks)
    offsets, lengths = box(value.shape, placements_of(spec.get("placements"), name, where), mesh)
    stored = file.stored(local)
    if stored.shape != lengths:
        raise UserError(
            f"the shape of the shard of {name} does not match its placement",
            found=f"{list(stored.shape)}, expected {list(lengths)} of {list(value.shape)}",
            where=where,
            fix=_FIX,
        )
    return offsets, stored


def _sharded_boxes(value: Distributed, file: TorchFile) -> Iterator[tuple[Shape, Stored]]:
    for shard in value.state[0]:
        metadata: Record = shard.get("metadata")
        stored = file.stored(shard.get("tensor"))
        if stored.shape != tuple(metadata.get("shard_sizes")):
            raise ValueError(f"a shard of shape {list(stored.shape)}, expected {metadata.get('shard_sizes')}")
        yield tuple(metadata.get("shard_offsets")), stored


def _equal(left: Stored, right: Stored) -> bool:
    if left.checksum is not None and left.checksum == right.checksum:
        return True
    for start in range(0, size_of(left), 1 << 20):
        count = min(1 << 20, size_of(left) - start)
        if left.read(start, count).tobytes() != right.read(start, count).tobytes():
            return False
    return True
