"""Record the inputs and options of a merge next to its output."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore_merge.checkpoint import Checkpoint
    from rlcore_merge.torch_files import TorchFile

FILE = "rlcore-merge.json"


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def identity(file: TorchFile) -> str:
    """A digest of the checksums of all records in a ``torch.save`` file, which changes with the content."""
    return digest(json.dumps(sorted(file.checksums.items())).encode())


def record(
    checkpoint: Checkpoint, base: Checkpoint | None, *, dtype: str, tensors: int, size: int, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The content of ``rlcore-merge.json``."""
    sources = [checkpoint] + ([base] if base is not None else [])
    return {
        "rlcore_merge": _version(),
        "python": platform.python_version(),
        "source": str(checkpoint.folder),
        "layout": checkpoint.layout,
        "base": None if base is None else str(base.folder),
        "dtype": dtype,
        "tensors": tensors,
        "bytes": size,
        "inputs": [entry for source in sources for entry in _inputs(source)],
        **more,
    }


def _inputs(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    entries = []
    for path in checkpoint.inputs:
        entry: dict[str, Any] = {"file": str(path), "bytes": Path(path).stat().st_size}
        if path.name in checkpoint.identity:
            entry["sha256_of_checksums"] = checkpoint.identity[path.name]
        entries.append(entry)
    return entries


def _version() -> str:
    try:
        return version("rlcore-merge")
    except PackageNotFoundError:
        return "unknown"
