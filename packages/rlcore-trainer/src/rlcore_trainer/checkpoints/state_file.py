"""The tensors of a checkpoint's state in one safetensors file, which all processes of a run write together.

Each process writes its parts of divided tensors at their places in the file, so no tensor is gathered, and the file
does not depend on the number of processes or the strategy. Everything but the tensors is plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rlcore_models.sharded import local, rows_of
from safetensors import safe_open
from torch import Tensor

STATE_FILE = "state.safetensors"
TENSOR = "tensor"
"""The key of the name of a tensor, in place of the tensor."""
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of types in the format, https://github.com/huggingface/safetensors."""


def separated(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return a nested state as plain JSON values, and its tensors by their names in it."""
    tensors: dict[str, Tensor] = {}

    def plain(value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            tensors[name] = value.detach()
            return {TENSOR: name}
        if isinstance(value, Mapping):
            return {key: plain(one, f"{name}/{key}" if name else str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [plain(one, f"{name}/{place}") for place, one in enumerate(value)]
        return value

    return plain(state, ""), tensors


def create(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Create a file with the names and shapes of tensors, to which `write` adds their values."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in _ordered(tensors):
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def write(path: Path, tensors: Mapping[str, Tensor], *, main: bool) -> None:
    """Write the values of this process into a file from `create`; whole tensors are written by the main process."""
    with path.open("r+b") as file:
        place = 8 + int.from_bytes(file.read(8), "little")
        for _, tensor in _ordered(tensors):
            part = local(tensor)
            size = part.element_size()
            if part is not tensor:
                row = tensor[:1].numel() * size if len(tensor) else 0
                file.seek(place + rows_of(tensor).start * row)
            elif main:
                file.seek(place)
            if (main or part is not tensor) and part.numel():
                file.write(part.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
            place += tensor.numel() * size


def read(path: Path, plain: Any) -> Any:
    """Return the state that `separated` gave, with tensors on the CPU that are read from the file when they are used.

    Raises:
        KeyError: a tensor is missing.
        ValueError: the file is damaged.
    """
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        return _joined(plain, names, file.get_tensor)


def _joined(plain: Any, names: set[str], tensor: Callable[[str], Tensor]) -> Any:
    if isinstance(plain, dict):
        if plain.keys() == {TENSOR}:
            if plain[TENSOR] not in names:
                raise KeyError(plain[TENSOR])
            return tensor(plain[TENSOR])
        return {key: _joined(value, names, tensor) for key, value in plain.items()}
    return [_joined(value, names, tensor) for value in plain] if isinstance(plain, list) else plain


def _ordered(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Return tensors by size of their elements, so that each begins at a multiple of it, and by name."""
    return sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
