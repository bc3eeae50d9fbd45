"""Read Hugging Face folders and adapter folders of peft: safetensors or ``.bin`` files, also sharded with an index."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.adapter import FINGERPRINT, QUANTIZATION

from rlcore_merge.checkpoint import Adapter, Checkpoint, Request, config_folders, extract, inside, read_object, separate
from rlcore_merge.sources.torch_files import TorchFile, absent
from rlcore_merge.tensors import COPY_AGAIN, KINDS, MappedFile, Stored, Tensor

_SINGLE = ("model.safetensors", "pytorch_model.bin", "pytorch_model_fsdp.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def open_folder(folder: Path, request: Request) -> Checkpoint:
    """Read the headers of all files. Raises `UserError` if a shard in the index is missing, or a file is damaged."""
    paths, expected = _files(folder)
    tensors: dict[str, Tensor] = {}
    identities = {}
    for path in paths:
        found, _, identities[path.name] = _read(path, folder)
        for name, tensor in found.items():
            if name in tensors:
                fix = "remove the older file"
                raise UserError("two files contain the same tensor", found=name, where=str(path), fix=fix)
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
        tensors=tensors,
        companions=config_folders(folder, request.base) if not (folder / "config.json").is_file() else [folder],
        inputs=paths,
        identity=identities,
    )
    return extract(checkpoint, request.alpha)


def _files(folder: Path) -> tuple[list[Path], list[str]]:
    """The weight files and the tensor names in their index."""
    for name in (_SINGLE[0], *_INDEXES, *_SINGLE[1:]):
        if (folder / name).is_file():
            return _indexed(folder / name, folder) if name in _INDEXES else ([folder / name], [])
    return sorted(folder.glob("*.safetensors")), []


def _indexed(index: Path, folder: Path) -> tuple[list[Path], list[str]]:
    try:
        places: Mapping[str, str] = read_object(index, folder)["weight_map"]
        names = sorted(set(places.values()))
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"a file name is {names[0]!r}")
    except (KeyError, TypeError, AttributeError) as error:
        fix = "restore the file, or save the model again"
        raise UserError(
            "the index of the weights cannot be read", found=repr(error), where=str(index), fix=fix
        ) from None
    for name in names:
        if "/" in name or "\\" in name or "\0" in name or not (folder / name).is_file():
            fix = "copy all files listed in the index"
            raise UserError("a weight file is missing", found=absent(name, folder), where=str(index), fix=fix)
    return [folder / name for name in names], list(places)


def _read(path: Path, folder: Path) -> tuple[Mapping[str, Tensor], Mapping[str, str], str]:
    """The tensors of a file, its metadata, and a digest of its header or its checksums."""
    inside(path, folder)
    if path.suffix != ".safetensors":
        archive = TorchFile(MappedFile(path))
        return archive.tensors(), {}, archive.identity
    tensors, metadata = read_safetensors(path)
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
    return tensors, metadata, hashlib.sha256(header).hexdigest()


def read_safetensors(path: Path) -> tuple[dict[str, Stored], Mapping[str, str]]:
    """The tensors and the metadata of a safetensors file, see `rlcore_merge.writing`. Only the header is read.

    Raises:
        UserError: the file is truncated or damaged, or has an unknown dtype.
    """
    file = MappedFile(path)
    try:
        if file.size < 8:
            raise ValueError("shorter than its length field")
        (length,) = struct.unpack("<Q", file.buffer[:8])
        if 8 + length > file.size:
            raise ValueError(f"the header has {length:,} bytes and the file {file.size:,}")
        header: dict[str, Any] = json.loads(file.buffer[8 : 8 + length].decode("utf-8"))
        metadata = dict(header.pop("__metadata__", {}))
        tensors = {name: _tensor(file, 8 + length, name, entry) for name, entry in header.items()}
        _check_contiguous(tensors, 8 + length, file.size)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found = f"it is truncated or damaged: {error}"
        raise UserError("a safetensors file cannot be read", found=found, where=str(path), fix=COPY_AGAIN) from None
    return tensors, metadata


def _tensor(file: MappedFile, data: int, name: str, entry: Mapping[str, Any]) -> Stored:
    if entry["dtype"] not in KINDS:
        raise ValueError(f"{name} has the unknown dtype {entry['dtype']}")
    kind = KINDS[entry["dtype"]]
    shape = tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name} has the shape {list(shape)} and the offsets {[begin, end]}")
    if end - begin != prod(shape) * kind.size:
        raise ValueError(f"{name} has {end - begin:,} bytes for the shape {list(shape)}")
    return Stored(file, data + begin, kind, shape)


def _check_contiguous(tensors: Mapping[str, Stored], data: int, size: int) -> None:
    """Raise `ValueError` if tensors overlap or leave gaps: the header then does not belong to the data."""
    at = data
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].position, prod(item[1].shape))):
        if tensor.position != at:
            begin, end = tensor.position - data, at - data
            raise ValueError(f"{name} begins at {begin:,}, but the tensor before it ends at {end:,}")
        at += prod(tensor.shape) * tensor.kind.size
    if at != size:
        raise ValueError(f"{size - at:,} bytes follow the last tensor")


def open_adapter(folder: Path, request: Request) -> Checkpoint:
    """Read ``adapter_config.json`` and the header of ``adapter_model.safetensors`` or ``.bin``.

    Raises:
        UserError: the weights are missing or damaged, or the settings are invalid.
    """
    settings = read_object(folder / "adapter_config.json", folder)
    if request.alpha is not None:
        settings["lora_alpha"] = request.alpha
    places = [folder / f"adapter_model.{suffix}" for suffix in ("safetensors", "bin")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        fix = "copy adapter_model.safetensors as well"
        raise UserError("the adapter has no weights", found="only adapter_config.json", where=str(folder), fix=fix)
    tensors, metadata, identity = _read(path, folder)
    if path.suffix == ".safetensors":  # the digest of its header does not change with the weights
        with path.open("rb") as file:
            identity = hashlib.sha256(file.read(1 << 20)).hexdigest()
    saved, adapter = separate(tensors, str(folder))
    about_base = {key: value for key, value in metadata.items() if key in (FINGERPRINT, QUANTIZATION)}
    return Checkpoint(
        layout="peft",
        folder=folder,
        tensors={},
        # A tokenizer saved with the adapter is the one used for training.
        companions=[folder],
        inputs=[path],
        identity={path.name: identity},
        adapter=Adapter(settings=settings, tensors={**adapter, **saved}, where=str(folder), about_base=about_base),
    )


def base_folder(name: object) -> Path | None:
    """The base that the settings of an adapter name, if it is on this machine or in the Hub cache."""
    if not isinstance(name, str) or not name:
        return None
    path = Path(name).expanduser()
    return path if path.is_dir() else cached(name)


def cached(name: str) -> Path | None:
    """The cached snapshot of a Hub model; None if it is not cached."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    folder = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{name.replace('/', '--')}"
    head = folder / "refs" / "main"
    if not head.is_file():
        return None
    snapshot = folder / "snapshots" / head.read_text(encoding="utf-8").strip()
    return snapshot if snapshot.is_dir() else None
