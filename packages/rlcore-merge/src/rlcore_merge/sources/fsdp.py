"""Read FSDP checkpoints: folders with one file per process, and those of ``torch.distributed.checkpoint``.

verl names the files of the processes ``model_world_size_W_rank_r.pt``, accelerate ``pytorch_model_fsdp_0_rank<r>.bin``.
A file maps names to the values of its process: a ``DTensor`` (FSDP2, and FSDP1 on a device mesh), a ``ShardedTensor``
(FSDP1), or a plain tensor, which is replicated on every process. verl's ``fsdp_config.json`` is optional, and any mesh
is supported. If several processes hold the same box, their contents are compared.

In a folder of ``torch.distributed.checkpoint``, ``.metadata`` lists the chunks of every tensor and, for every chunk, a
range of a ``__R_N.distcp`` file. Each range is a small ``torch.save`` archive. Nested keys are joined with dots. Their
original paths distinguish tensors of the model from those of the optimiser.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import open_regular

from rlcore_merge.checkpoint import Checkpoint, Request, config_folders, extract, inside, read_object
from rlcore_merge.sources import pickles
from rlcore_merge.sources.pickles import DAMAGED, Distributed, Object, Strided, whole_number, whole_numbers
from rlcore_merge.sources.sharding import Assembled, Mesh, Piece, box, mesh_of, placements_of, tile
from rlcore_merge.sources.torch_files import TorchFile, absent
from rlcore_merge.tensors import COPY_AGAIN, Array, Kind, MappedFile, Shape, Stored, Tensor, identical

FILE = re.compile(r"model_world_size_(\d{1,6})_rank_(\d{1,6})\.pt")
ACCELERATE = re.compile(r"pytorch_model_fsdp_0_rank(\d{1,6})\.bin")
_FIX = "save the checkpoint again, or use an earlier one"
_ALL_NODES = "copy the files of all nodes into one folder"
_MODEL = {"model", "module", "state_dict", "model_state_dict", "app", "policy"}
_OTHERS = {
    "optim", "optimizer", "optimizers", "optimizer_state_dict", "optim_state_dict", "lr_scheduler", "scheduler",
    "dataloader", "train_state", "rng", "step",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Process:
    """The file of one process."""

    rank: int
    path: Path
    file: TorchFile
    meshes: dict[int, Mesh] = field(default_factory=dict)
    """The meshes in the file by the identity of their object, which all tensors on a mesh share."""

    def mesh(self, found: Object) -> Mesh:
        if id(found) not in self.meshes:
            self.meshes[id(found)] = mesh_of(found, self.rank, self._read)
        return self.meshes[id(found)]

    def _read(self, tensor: Strided) -> Array:
        stored = self.file.stored(tensor)
        if stored.record is not None:
            stored.record.read()  # raises if it is damaged
        return stored.array()


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the table of contents of each of verl's files and assemble the tensors.

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
    for path, content in zip(paths, contents, strict=True):
        _check_same_names(contents[0], content, paths[0], path)
    distributed = any(isinstance(value, Distributed) for value in contents[0].values())
    for name in contents[0]:
        values = [content[name] for content in contents]
        if any(isinstance(value, Strided | Distributed) for value in values):
            tensors[name] = _tensor(name, values, processes)
            if distributed and isinstance(values[0], Strided):
                buffers.add(name)
    checkpoint = Checkpoint(
        layout=layout,
        folder=folder,
        tensors=tensors,
        companions=config_folders(folder, request.base, "huggingface"),
        inputs=list(paths),
        buffers=frozenset(buffers),
        identity={process.path.name: process.file.identity for process in processes},
    )
    return extract(checkpoint, request.alpha)


def _accelerate_files(folder: Path) -> list[Path]:
    """The files of the first model, by rank. A missing last file is noticed by the missing part of the tensors."""
    files = {int(match[1]): path for path in folder.iterdir() if (match := ACCELERATE.fullmatch(path.name))}
    if not files:
        found = "files of LOCAL_STATE_DICT, which do not contain the shapes of the parameters"
        fix = "set fsdp_state_dict_type to SHARDED_STATE_DICT or FULL_STATE_DICT and save the checkpoint again"
        raise UserError("the files have no complete tensors", found=found, where=str(folder), fix=fix)
    return _all_ranks(files, max(files) + 1, "pytorch_model_fsdp_0_rank{}.bin", folder)


def _all_ranks(files: Mapping[int, Path], size: int, pattern: str, folder: Path) -> list[Path]:
    missing = [pattern.format(rank) for rank in range(size) if rank not in files]
    if missing:
        message = f"{len(missing)} of the {size} processes' files {'is' if len(missing) == 1 else 'are'} missing"
        found = f"no {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else "")
        raise UserError(message, found=found, where=str(folder), fix=_ALL_NODES)
    return [files[rank] for rank in range(size)]


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
    return _all_ranks(files, size, f"model_world_size_{size}_rank_{{}}.pt", folder)


def _configured_world(folder: Path) -> int | None:
    path = folder / "fsdp_config.json"
    if not path.is_file():
        return None
    world = read_object(path, folder).get("world_size")
    if type(world) is not int:
        fix = "remove it: the file names contain the number of processes"
        raise UserError("fsdp_config.json cannot be read", found=f"world_size is {world!r}", where=str(path), fix=fix)
    return world


def _open(path: Path) -> TorchFile:
    file = TorchFile(MappedFile(path))
    if not isinstance(file.content, Mapping):
        found = type(file.content).__name__
        raise UserError("the file is not a state dict", found=found, where=str(path), fix=_FIX)
    return file


def _check_same_names(names: Mapping[str, Any], content: Mapping[str, Any], first: Path, path: Path) -> None:
    if difference := sorted(content.keys() ^ names.keys(), key=str):
        has = path.name if difference[0] in content else first.name
        found = f"{difference[0]} is only in {has}" + (f", and {len(difference) - 1} more" if difference[1:] else "")
        fix = "merge files of one run and one step; pipeline parallelism is not supported"
        raise UserError("the processes disagree about the names of the tensors", found=found, where=str(path), fix=fix)


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
                found = f"{copies[0][1].name} and {process.path.name} differ"
                raise UserError(f"two processes hold different values of {name}", found=found, where=folder, fix=_FIX)
            copies.append((stored, process.path))
    assert whole is not None
    pieces = [
        Piece.of(offsets, replace(copies[0][0], copies=tuple(stored for stored, _ in copies[1:])))
        for (offsets, lengths), copies in boxes.items()
        if prod(lengths) or not prod(whole)
    ]
    if kind is None or not tile(whole, [(piece.offsets, piece.shape) for piece in pieces]):
        held_elements = sum(prod(piece.shape) for piece in pieces)
        raise UserError(
            f"the files do not contain all of {name}",
            found=f"parts with {held_elements:,} of {prod(whole):,} elements of the shape {list(whole)}"
            + (", which overlap or exceed it" if held_elements >= prod(whole) else ""),
            where=folder,
            fix=_FIX,
        )
    if len(pieces) == 1:
        return pieces[0].stored
    return Assembled(kind, whole, sorted(pieces, key=lambda piece: piece.offsets))


def _equal(left: Stored, right: Stored) -> bool:
    return (left.checksum is not None and left.checksum == right.checksum) or identical(left, right)


def _held(name: str, value: Any, process: _Process) -> tuple[Shape, list[tuple[Shape, Stored]]]:
    """The full shape of a tensor and the boxes of it that a process holds."""
    if isinstance(value, Strided):
        return value.shape, [((0,) * len(value.shape), process.file.stored(value))]
    try:
        if isinstance(value, Distributed) and value.name == "DTensor":
            return value.shape, [_dtensor_box(name, value, process)]
        if isinstance(value, Distributed):
            return value.shape, list(_sharded_boxes(value, process.file))
        found = f"{type(value).__name__}, but other processes have a tensor"
    except DAMAGED as error:
        found = f"{type(error).__name__}: {error}"
    raise UserError(f"{name} cannot be read", found=found, where=str(process.path), fix=_FIX)


def _dtensor_box(name: str, value: Distributed, process: _Process) -> tuple[Shape, Stored]:
    state = value.state[1] if isinstance(value.state, tuple) else value.state
    spec, local = state["_spec"], state["_local_tensor"]
    mesh = process.mesh(spec.get("mesh"))
    placements = placements_of(spec.get("placements"), name, str(process.path))
    offsets, lengths = box(value.shape, placements, mesh)
    stored = process.file.stored(local)
    if stored.shape != lengths:
        message = f"the shape of the shard of {name} does not match its placement"
        found = f"{list(stored.shape)}, expected {list(lengths)} of {list(value.shape)}"
        raise UserError(message, found=found, where=str(process.path), fix=_FIX)
    return offsets, stored


def _sharded_boxes(value: Distributed, file: TorchFile) -> Iterator[tuple[Shape, Stored]]:
    for shard in value.state[0]:
        metadata: Object = shard.get("metadata")
        stored = file.stored(shard.get("tensor"))
        sizes = whole_numbers(metadata.get("shard_sizes"))
        if stored.shape != sizes:
            raise ValueError(f"a shard of shape {list(stored.shape)}, expected {list(sizes)}")
        yield whole_numbers(metadata.get("shard_offsets")), stored


def open_dcp(folder: Path, request: Request) -> Checkpoint:
    """Read ``.metadata`` and check that the chunk files are complete. Chunks are opened when they are read."""
    path = folder / ".metadata"
    try:
        with open_regular(inside(path, folder)) as file:
            content = file.read()
    except OSError as error:
        raise UserError("the checkpoint metadata cannot be read", found=str(error), where=str(path)) from None
    metadata = pickles.load(content, str(path))
    if not isinstance(metadata, Object) or not metadata.name.endswith(".Metadata"):
        raise UserError("the file is not metadata of torch.distributed.checkpoint", where=str(path))
    files: dict[str, MappedFile] = {}
    try:
        tensors = _described(folder, metadata, files)
    except DAMAGED as error:
        found = f"{type(error).__name__}: {error}"
        raise UserError("the checkpoint metadata cannot be read", found=found, where=str(path)) from None
    if not tensors:
        raise UserError("the checkpoint contains no model tensors", where=str(folder))
    checkpoint = Checkpoint(
        layout="torch-dcp",
        folder=folder,
        tensors=tensors,
        companions=config_folders(folder, request.base, "huggingface"),
        inputs=[path, *(file.path for file in files.values())],
        identity={path.name: hashlib.sha256(content).hexdigest()},
    )
    return extract(checkpoint, request.alpha)


def _described(folder: Path, metadata: Object, files: dict[str, MappedFile]) -> dict[str, Tensor]:
    """The tensors of the model. The files with their chunks are added to ``files``."""
    places = {}
    for index, place in metadata.get("storage_data").items():
        offset = index.get("offset")
        places[index.get("fqn"), None if offset is None else tuple(offset)] = place
    names = _names(metadata)
    return {
        names[key]: _chunked(folder, key, entry, places, files)
        for key, entry in metadata.get("state_dict_metadata").items()
        if key in names and entry.name.endswith(".TensorStorageMetadata")
    }


def _names(metadata: Object) -> dict[str, str]:
    """The tensor name for each key of the model."""
    paths = metadata.get("planner_data")
    names = {}
    for key in metadata.get("state_dict_metadata"):
        path = paths.get(key, (key,)) if isinstance(paths, Mapping) else (key,)
        path = tuple(str(part) for part in path)
        if _OTHERS & set(path[:-1]) or (len(path) == 1 and path[0].partition(".")[0] in _OTHERS):
            continue
        while len(path) > 1 and path[0] in _MODEL:
            path = path[1:]
        names[key] = ".".join(path)
    return names


def _chunked(
    folder: Path, key: str, entry: Object, places: Mapping[Any, Object], files: dict[str, MappedFile]
) -> Tensor:
    kind = entry.get("properties").state[0]
    if not isinstance(kind, Kind):
        raise ValueError(f"{key} has an unknown dtype")
    shape = whole_numbers(entry.get("size"))
    pieces = []
    for chunk in entry.get("chunks"):
        offsets, sizes = whole_numbers(chunk.get("offsets")), whole_numbers(chunk.get("sizes"))
        if 0 in sizes and 0 not in shape:
            continue
        place = places.get((key, offsets)) or places.get((key, None))
        if place is None:
            raise UserError(f"the metadata have no location for {key}", where=str(folder))
        if place.get("transform_descriptors"):
            fix = "save the checkpoint without stream transforms"
            raise UserError(f"{key} is compressed", where=str(folder), fix=fix)
        name = place.get("relative_path")
        if name not in files:
            path = inside(folder / name, folder)
            if not path.is_file():
                raise UserError(
                    "a checkpoint file is missing", found=absent(name, folder), where=str(folder), fix=_ALL_NODES
                )
            files[name] = MappedFile(path)
        file = files[name]
        begin, length = whole_number(place.get("offset")), whole_number(place.get("length"))
        if begin + length > file.size:
            found = f"{file.size:,} bytes, but {key} ends at {begin + length:,}"
            raise UserError("a checkpoint file is truncated", found=found, where=str(file.path), fix=COPY_AGAIN)
        pieces.append(Piece(offsets, sizes, partial(_chunk, file, begin, length, kind, sizes, key)))
    if not tile(shape, [(piece.offsets, piece.shape) for piece in pieces]):
        held = sum(prod(piece.shape) for piece in pieces)
        raise UserError(
            f"the checkpoint does not contain all of {key}",
            found=f"parts with {held:,} of {prod(shape):,} elements"
            + (", which overlap or exceed its shape" if held >= prod(shape) else ""),
            where=str(folder),
            fix=_FIX,
        )
    return Assembled(kind, shape, sorted(pieces, key=lambda piece: piece.offsets))


def _chunk(file: MappedFile, begin: int, length: int, kind: Kind, shape: Shape, key: str) -> Stored:
    """The location of the elements in the archive that is a range of a file."""
    archive = TorchFile(file, begin, length)
    tensor = archive.content
    if not isinstance(tensor, Strided) or tensor.shape != shape or tensor.kind is not kind:
        found = f"{list(tensor.shape)} {tensor.kind.name}" if isinstance(tensor, Strided) else type(tensor).__name__
        message = f"{key} does not match the metadata"
        raise UserError(message, found=f"{found}, expected {list(shape)} {kind.name}", where=str(file.path))
    return archive.stored(tensor)
