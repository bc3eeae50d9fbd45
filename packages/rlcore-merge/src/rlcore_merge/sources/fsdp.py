"""Read FSDP folders with one file per process, as saved by verl and by accelerate without DCP.

verl names them ``model_world_size_W_rank_r.pt``, accelerate ``pytorch_model_fsdp_0_rank<r>.bin``. A file maps names to
the values of its process: a ``DTensor`` (FSDP2, and FSDP1 on a device mesh), a ``ShardedTensor`` (FSDP1), or a plain
tensor, which is replicated on every process. verl's ``fsdp_config.json`` is optional, and any mesh is supported. If
several processes hold the same box, their contents are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge import lora
from rlcore_merge.assembled import Assembled
from rlcore_merge.blocks import Piece, Shape, tile
from rlcore_merge.checkpoint import Checkpoint, Request, config_folders, plain_names
from rlcore_merge.dtypes import Array
from rlcore_merge.json_files import read_object
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.pickles import DAMAGED, Distributed, Record, Strided, whole_numbers
from rlcore_merge.provenance import identity
from rlcore_merge.sharding import Mesh, box, mesh_of, placements_of
from rlcore_merge.source_files import inside
from rlcore_merge.tensors import Stored, Tensor, size_of
from rlcore_merge.torch_files import TorchFile

FILE = re.compile(r"model_world_size_(\d{1,6})_rank_(\d{1,6})\.pt")
ACCELERATE = re.compile(r"pytorch_model_fsdp_0_rank(\d{1,6})\.bin")
_FIX = "save the checkpoint again, or use an earlier one"


@dataclass(frozen=True, slots=True)
class _Process:
    """The file of one process."""

    rank: int
    path: Path
    file: TorchFile
    meshes: dict[int, Mesh] = field(default_factory=dict)
    """The meshes in the file by the identity of their record, which all tensors on a mesh share."""

    def mesh(self, record: Record) -> Mesh:
        if id(record) not in self.meshes:
            self.meshes[id(record)] = mesh_of(record, self.rank, self._read)
        return self.meshes[id(record)]

    def _read(self, tensor: Strided) -> Array:
        stored = self.file.stored(tensor)
        if stored.record is not None:
            stored.record.read()  # raises if it is damaged
        return stored.array()


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the table of contents of each file and assemble the tensors.

    Raises:
        UserError: a file is missing or damaged, or the processes disagree.
    """
    return _open_files(folder, _verl_files(folder), "verl-fsdp", request)


def open_accelerate(folder: Path, request: Request) -> Checkpoint:
    """Like `open_folder`, for files of accelerate, whose names do not contain the number of processes."""
    return _open_files(folder, _accelerate_files(folder), "accelerate-fsdp", request)


def _open_files(folder: Path, paths: Sequence[Path], layout: str, request: Request) -> Checkpoint:
    processes = [_Process(rank, path, _open(inside(path, folder))) for rank, path in enumerate(paths)]
    contents: list[Mapping[str, Any]] = [process.file.content for process in processes]
    tensors: dict[str, Tensor] = {}
    buffers = set()
    names = list(contents[0])
    for path, content in zip(paths, contents, strict=True):
        _same_names(names, content, paths[0], path)
    distributed = any(isinstance(value, Distributed) for value in contents[0].values())
    for name in names:
        values = [content[name] for content in contents]
        if not any(isinstance(value, Strided | Distributed) for value in values):
            continue
        plain = isinstance(values[0], Strided)
        tensors[name] = _tensor(name, values, processes)
        if plain and distributed:
            buffers.add(name)
    plain_of = dict(zip(tensors, plain_names(tensors, str(folder)), strict=True))
    checkpoint = Checkpoint(
        layout=layout,
        folder=folder,
        tensors={plain_of[name]: tensor for name, tensor in tensors.items()},
        companions=config_folders(folder, request.base, "huggingface"),
        inputs=list(paths),
        buffers=frozenset(plain_of[name] for name in buffers),
        identity={process.path.name: identity(process.file) for process in processes},
    )
    lora.extract(checkpoint, request.alpha)
    return checkpoint


def _accelerate_files(folder: Path) -> list[Path]:
    """The files of the first model, by rank. A missing last file is noticed by the missing part of the tensors."""
    files = {int(match[1]): path for path in folder.iterdir() if (match := ACCELERATE.fullmatch(path.name))}
    if not files:
        raise UserError(
            "the files have no complete tensors",
            found="files of LOCAL_STATE_DICT, which do not contain the shapes of the parameters",
            where=str(folder),
            fix="set fsdp_state_dict_type to SHARDED_STATE_DICT or FULL_STATE_DICT and save the checkpoint again",
        )
    missing = [f"pytorch_model_fsdp_0_rank{rank}.bin" for rank in range(max(files)) if rank not in files]
    if missing:
        raise _missing(missing, max(files) + 1, folder)
    return [files[rank] for rank in sorted(files)]


def _missing(names: Sequence[str], size: int, folder: Path) -> UserError:
    return UserError(
        f"{len(names)} of the {size} processes' files {'is' if len(names) == 1 else 'are'} missing",
        found=f"no {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else ""),
        where=str(folder),
        fix="copy the files of all nodes into one folder",
    )


def _verl_files(folder: Path) -> list[Path]:
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
    if not ranks:
        raise UserError(
            "the files have unknown names",
            found=", ".join(sorted(path.name for path in folder.glob("model_world_size_*.pt"))[:3]),
            where=str(folder),
            fix="restore verl's names, such as model_world_size_4_rank_0.pt",
        )
    size, files = next(iter(ranks.items()))
    missing = [f"model_world_size_{size}_rank_{rank}.pt" for rank in range(size) if rank not in files]
    if missing:
        raise _missing(missing, size, folder)
    return [files[rank] for rank in range(size)]


def _configured_world(folder: Path) -> int | None:
    path = folder / "fsdp_config.json"
    if not path.is_file():
        return None
    world = read_object(inside(path, folder)).get("world_size")
    if type(world) is not int:
        raise UserError(
            "fsdp_config.json cannot be read",
            found=f"world_size is {world!r}",
            where=str(path),
            fix="remove it: the file names contain the number of processes",
        )
    return world


def _open(path: Path) -> TorchFile:
    file = TorchFile(MappedFile(path))
    if not isinstance(file.content, Mapping):
        found = type(file.content).__name__
        raise UserError("the file is not a state dict", found=found, where=str(path), fix=_FIX)
    return file


def _same_names(names: Sequence[str], content: Mapping[str, Any], first: Path, path: Path) -> None:
    if content.keys() != set(names):
        difference = sorted(content.keys() ^ set(names), key=str)
        has = path.name if difference[0] in content else first.name
        raise UserError(
            "the processes disagree about the names of the tensors",
            found=f"{difference[0]} is only in {has}" + (f", and {len(difference) - 1} more" if difference[1:] else ""),
            where=str(path),
            fix="merge files of one run and one step; pipeline parallelism is not supported",
        )


def _tensor(name: str, values: Sequence[Any], processes: Sequence[_Process]) -> Tensor:
    folder = str(processes[0].path.parent)
    whole: Shape | None = None
    kind = None
    boxes: dict[tuple[Shape, Shape], list[tuple[Stored, Path]]] = {}
    for value, process in zip(values, processes, strict=True):
        shape, held = _held(name, value, process)
        if whole not in (None, shape):
            raise UserError(
                f"the processes disagree about the shape of {name}",
                found=f"{list(whole or ())} in {processes[0].path.name}, {list(shape)} in {process.path.name}",
                where=folder,
                fix=_FIX,
            )
        whole = shape
        for offsets, stored in held:
            if kind not in (None, stored.kind):
                raise UserError(f"the processes disagree about the dtype of {name}", where=str(process.path), fix=_FIX)
            kind = stored.kind
            copies = boxes.setdefault((offsets, stored.shape), [])
            if copies and not _equal(copies[0][0], stored):
                raise UserError(
                    f"two processes hold different values of {name}",
                    found=f"{copies[0][1].name} and {process.path.name} differ",
                    where=folder,
                    fix=_FIX,
                )
            copies.append((stored, process.path))
    assert whole is not None
    pieces = [
        Piece(offsets, replace(copies[0][0], copies=tuple(stored for stored, _ in copies[1:])))
        for (offsets, lengths), copies in boxes.items()
        if prod(lengths) or not prod(whole)
    ]
    if kind is None or not tile(whole, [(piece.offsets, piece.block.shape) for piece in pieces]):
        held_elements = sum(prod(piece.block.shape) for piece in pieces)
        raise UserError(
            f"the files do not contain all of {name}",
            found=f"parts with {held_elements:,} of {prod(whole):,} elements of the shape {list(whole)}"
            + (", which overlap or exceed it" if held_elements >= prod(whole) else ""),
            where=folder,
            fix=_FIX,
        )
    if len(pieces) == 1 and isinstance(pieces[0].block, Stored):
        return pieces[0].block
    return Assembled(kind, whole, sorted(pieces, key=lambda piece: piece.offsets))


def _held(name: str, value: Any, process: _Process) -> tuple[Shape, list[tuple[Shape, Stored]]]:
    """The full shape of a tensor and the boxes of it that a process holds."""
    if isinstance(value, Strided):
        return value.shape, [((0,) * len(value.shape), process.file.stored(value))]
    try:
        if isinstance(value, Distributed) and value.name == "DTensor":
            return value.shape, [_dtensor_box(name, value, process)]
        if isinstance(value, Distributed):
            return value.shape, list(_sharded_boxes(value, process.file))
    except DAMAGED as error:
        found = f"{type(error).__name__}: {error}"
        raise UserError(f"{name} cannot be read", found=found, where=str(process.path), fix=_FIX) from None
    found = f"{type(value).__name__}, but other processes have a tensor"
    raise UserError(f"{name} cannot be read", found=found, where=str(process.path), fix=_FIX)


def _dtensor_box(name: str, value: Distributed, process: _Process) -> tuple[Shape, Stored]:
    state = value.state[1] if isinstance(value.state, tuple) else value.state
    spec, local = state["_spec"], state["_local_tensor"]
    mesh = process.mesh(spec.get("mesh"))
    placements = placements_of(spec.get("placements"), name, str(process.path))
    offsets, lengths = box(value.shape, placements, mesh)
    stored = process.file.stored(local)
    if stored.shape != lengths:
        raise UserError(
            f"the shape of the shard of {name} does not match its placement",
            found=f"{list(stored.shape)}, expected {list(lengths)} of {list(value.shape)}",
            where=str(process.path),
            fix=_FIX,
        )
    return offsets, stored


def _sharded_boxes(value: Distributed, file: TorchFile) -> Iterator[tuple[Shape, Stored]]:
    for shard in value.state[0]:
        metadata: Record = shard.get("metadata")
        stored = file.stored(shard.get("tensor"))
        sizes = whole_numbers(metadata.get("shard_sizes"))
        if stored.shape != sizes:
            raise ValueError(f"a shard of shape {list(stored.shape)}, expected {list(sizes)}")
        yield whole_numbers(metadata.get("shard_offsets")), stored


def _equal(left: Stored, right: Stored) -> bool:
    if left.checksum is not None and left.checksum == right.checksum:
        return True
    for start in range(0, size_of(left), 1 << 20):
        count = min(1 << 20, size_of(left) - start)
        if left.read(start, count).tobytes() != right.read(start, count).tobytes():
            return False
    return True
