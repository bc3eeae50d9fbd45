"""Read folders of ``torch.distributed.checkpoint``, including accelerate's FSDP folders.

``.metadata`` lists the chunks of every tensor and, for every chunk, a range of a ``__R_N.distcp`` file. Each range is a
small ``torch.save`` archive. Nested keys are joined with dots. Their original paths distinguish tensors of the model
from those of the optimiser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge import lora, pickles
from rlcore_merge.assembled import Assembled
from rlcore_merge.blocks import Piece, Shape, tile
from rlcore_merge.checkpoint import Checkpoint, Request, config_folders, plain_names
from rlcore_merge.dtypes import Array, Kind
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.pickles import Record, Strided, whole_number, whole_numbers
from rlcore_merge.provenance import digest
from rlcore_merge.source_files import inside
from rlcore_merge.tensors import Stored, Tensor
from rlcore_merge.torch_files import TorchFile

_MODEL = {"model", "module", "state_dict", "model_state_dict", "app", "policy"}
_OTHERS = {
    "optim", "optimizer", "optimizers", "optimizer_state_dict", "optim_state_dict", "lr_scheduler", "scheduler",
    "dataloader", "train_state", "rng", "step",
}  # fmt: skip


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read ``.metadata`` and check that the chunk files are complete. Chunks are opened when they are read."""
    path = folder / ".metadata"
    with inside(path, folder).open("rb") as file:
        metadata = pickles.load(file, str(path))
    if not isinstance(metadata, Record) or not metadata.name.endswith(".Metadata"):
        raise UserError("the file is not metadata of torch.distributed.checkpoint", where=str(path))
    try:
        return _checkpoint(folder, metadata, request)
    except pickles.DAMAGED as error:
        found = f"{type(error).__name__}: {error}"
        raise UserError("the checkpoint metadata cannot be read", found=found, where=str(path)) from None


def _checkpoint(folder: Path, metadata: Record, request: Request) -> Checkpoint:
    ranges = {}
    for index, place in metadata.get("storage_data").items():
        offset = index.get("offset")
        ranges[index.get("fqn"), None if offset is None else tuple(offset)] = place
    files: dict[str, MappedFile] = {}
    tensors: dict[str, Tensor] = {}
    names = _names(metadata)
    for key, entry in metadata.get("state_dict_metadata").items():
        if key in names and entry.name.endswith(".TensorStorageMetadata"):
            tensors[names[key]] = _tensor(folder, key, entry, ranges, files)
    if not tensors:
        raise UserError("the checkpoint contains no model tensors", where=str(folder))
    checkpoint = Checkpoint(
        layout="torch-dcp",
        folder=folder,
        tensors=plain_names(tensors, str(folder)),
        companions=config_folders(folder, request.base, "huggingface"),
        inputs=[folder / ".metadata", *(file.path for file in files.values())],
        identity={".metadata": digest((folder / ".metadata").read_bytes())},
    )
    lora.extract(checkpoint, request.alpha)
    return checkpoint


def _names(metadata: Record) -> dict[str, str]:
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


def _tensor(
    folder: Path, key: str, entry: Record, ranges: Mapping[Any, Record], files: dict[str, MappedFile]
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
        place = ranges.get((key, offsets)) or ranges.get((key, None))
        if place is None:
            raise UserError(f"the metadata have no location for {key}", where=str(folder))
        if place.get("transform_descriptors"):
            raise UserError(
                f"{key} is compressed", where=str(folder), fix="save the checkpoint without stream transforms"
            )
        name = place.get("relative_path")
        if name not in files:
            files[name] = _file(folder, name)
        begin, length = whole_number(place.get("offset")), whole_number(place.get("length"))
        if begin + length > files[name].size:
            found = f"{files[name].size:,} bytes, but {key} ends at {begin + length:,}"
            raise UserError(
                "a checkpoint file is truncated",
                found=found,
                where=str(folder / name),
                fix="copy or save the file again",
            )
        pieces.append(Piece(offsets, _Chunk(files[name], begin, length, kind, sizes, key)))
    if not tile(shape, [(piece.offsets, piece.block.shape) for piece in pieces]):
        held = sum(prod(piece.block.shape) for piece in pieces)
        raise UserError(
            f"the checkpoint does not contain all of {key}",
            found=f"parts with {held:,} of {prod(shape):,} elements"
            + (", which overlap or exceed its shape" if held >= prod(shape) else ""),
            where=str(folder),
            fix="save the checkpoint again, or use an earlier one",
        )
    return Assembled(kind, shape, sorted(pieces, key=lambda piece: piece.offsets))


def _file(folder: Path, name: str) -> MappedFile:
    path = inside(folder / name, folder)
    if not path.is_file():
        raise UserError(
            "a checkpoint file is missing",
            found=f"no {name}",
            where=str(folder),
            fix="copy the files of all nodes into one folder",
        )
    return MappedFile(path)


class _Chunk:
    """A tensor in an archive that is a range of a file. The archive is opened at the first read."""

    def __init__(self, file: MappedFile, begin: int, length: int, kind: Kind, shape: Shape, key: str) -> None:
        self._file, self._begin, self._length, self._key = file, begin, length, key
        self.kind, self.shape = kind, shape

    @cached_property
    def stored(self) -> Stored:
        """The location of the elements."""
        archive = TorchFile(self._file, self._begin, self._length)
        tensor = archive.content
        if not isinstance(tensor, Strided) or tensor.shape != self.shape or tensor.kind is not self.kind:
            found = f"{list(tensor.shape)} {tensor.kind.name}" if isinstance(tensor, Strided) else type(tensor).__name__
            raise UserError(
                f"{self._key} does not match the metadata",
                found=f"{found}, expected {list(self.shape)} {self.kind.name}",
                where=str(self._file.path),
            )
        return archive.stored(tensor)

    def array(self) -> Array:
        """All elements as a view of the file."""
        return self.stored.array()

    def leaves(self) -> Iterator[Stored]:
        """See `rlcore_merge.tensors.Tensor.leaves`."""
        return self.stored.leaves()
