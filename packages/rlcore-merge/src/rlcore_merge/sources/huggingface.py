"""Read Hugging Face folders: safetensors or ``.bin`` files, single or sharded with an index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlcore.errors import UserError

from rlcore_merge import lora, safetensors_files
from rlcore_merge.checkpoint import Checkpoint, Request, config_folders, plain_names
from rlcore_merge.json_files import read_object
from rlcore_merge.mapped_file import MappedFile
from rlcore_merge.provenance import digest, identity
from rlcore_merge.source_files import inside
from rlcore_merge.tensors import Tensor
from rlcore_merge.torch_files import TorchFile

_SINGLE = ("model.safetensors", "pytorch_model.bin", "pytorch_model_fsdp.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the headers of all files.

    Raises:
        UserError: a shard in the index is missing, or a file is damaged.
    """
    paths, expected = _files(folder)
    tensors: dict[str, Tensor] = {}
    identities = {}
    for path in paths:
        found, identities[path.name] = _read(inside(path, folder))
        for name, tensor in found.items():
            if name in tensors:
                raise UserError(
                    "two files contain the same tensor", found=name, where=str(path), fix="remove the older file"
                )
            tensors[name] = tensor
    missing = sorted(set(expected) - set(tensors))
    if missing:
        raise UserError(
            "tensors listed in the index are missing",
            found=f"{len(missing)} missing, such as {missing[0]}",
            where=str(folder),
            fix="copy all weight files together with their index",
        )
    checkpoint = Checkpoint(
        layout="huggingface",
        folder=folder,
        tensors=plain_names(tensors, str(folder)),
        companions=config_folders(folder, request.base) if not (folder / "config.json").is_file() else [folder],
        inputs=paths,
        identity=identities,
    )
    lora.extract(checkpoint, request.alpha)
    return checkpoint


def _files(folder: Path) -> tuple[list[Path], list[str]]:
    """The weight files and the tensor names in their index."""
    for name in _SINGLE[:1]:
        if (folder / name).is_file():
            return [folder / name], []
    for name in _INDEXES:
        if (folder / name).is_file():
            return _indexed(inside(folder / name, folder))
    for name in _SINGLE[1:]:
        if (folder / name).is_file():
            return [folder / name], []
    return sorted(folder.glob("*.safetensors")), []


def _indexed(index: Path) -> tuple[list[Path], list[str]]:
    try:
        places: Mapping[str, str] = read_object(index)["weight_map"]
        names = sorted(set(places.values()))
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"a file name is {names[0]!r}")
    except (KeyError, TypeError, AttributeError) as error:
        fix = "restore the file, or save the model again"
        raise UserError(
            "the index of the weights cannot be read", found=repr(error), where=str(index), fix=fix
        ) from None
    for name in names:
        if "/" in name or "\\" in name or "\0" in name or not (index.parent / name).is_file():
            raise UserError(
                "a weight file is missing",
                found=f"no {name}",
                where=str(index),
                fix="copy all files listed in the index",
            )
    return [index.parent / name for name in names], list(places)


def _read(path: Path) -> tuple[Mapping[str, Tensor], str]:
    if path.suffix == ".safetensors":
        stored, _ = safetensors_files.read(path)
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return stored, digest(file.read(length))
    archive = TorchFile(MappedFile(path))
    return archive.tensors(), identity(archive)
