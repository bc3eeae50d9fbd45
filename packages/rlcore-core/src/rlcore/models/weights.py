"""The weights in a folder: as a `WeightSource`, and what their files say about them before they are loaded."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlcore.errors import UserError
from rlcore.models.config_file import CONFIG, MAX_BYTES, json_object, read_config
from rlcore.models.fingerprint import safetensors_header

Types = Mapping[str, tuple[str, int]]
"""The dtype and the number of dimensions of each tensor in a file."""
COPY = "copy all weight files, and the config.json that belongs to them"
_INTEGER = re.compile(r"[IU]\d+|u?int\d+|BOOL|bool")
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d+)\.")
_PICKLED = re.compile(rb"ctorch\n(\w+)\n")
"""A storage, or a dtype without one, that a pickle of torch names."""
_STORAGES = {
    **{"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16"},
    **{"ByteStorage": "uint8", "CharStorage": "int8", "ShortStorage": "int16", "IntStorage": "int32"},
    **{"LongStorage": "int64", "BoolStorage": "bool"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWeights:
    """A `WeightSource` for the weights in a Hugging Face folder."""

    folder: Path | None
    """None for an engine that provides its own model."""
    version: int = 0
    adapter: None = None

    def weights(self, *, adapter_only: bool = False) -> None:
        """Return None: engines read the folder."""


def check_layers(folder: Path) -> None:
    """Reject a folder with weights of more layers than its config.json says, which an engine may not read.

    Layers that predict further tokens (``num_nextn_predict_layers``) follow the others. Encoders of images and sounds
    are not checked.
    """
    config = read_config(folder)
    inner = {**config, **(config.get("text_config") or {})}
    layers, more = inner.get("num_hidden_layers"), inner.get("num_nextn_predict_layers") or 0
    if type(layers) is not int or type(more) is not int:
        return
    for path in sorted(folder.glob("*.safetensors")):
        for name in _types(path):
            found = _LAYER.match(name)
            if found is not None and int(found[1]) >= layers + more:
                raise UserError(
                    "the model folder has more weights than the model of its config.json",
                    found=f"{name}, and num_hidden_layers {layers}",
                    where=str(path),
                    fix=COPY,
                )


def check_types(folder: Path, *, pickled: Callable[[Path], Types] | None = None) -> None:
    """Reject weights of integers, which loading would silently convert, unless config.json says how to read them.

    Files that cannot be read are skipped, because loading reports them.

    Args:
        folder: the folder of the model
        pickled: reads the tensors of a file of torch; None skips such files
    """
    config = json_object(folder / CONFIG)
    if not config or config.get("quantization_config") is not None:
        return
    for path in _files(folder):
        types = _types(path) if path.suffix != ".bin" else pickled(path) if pickled is not None else {}
        for name, (kind, dimensions) in types.items():
            if _INTEGER.fullmatch(kind) and (name.endswith(".weight") or (name.endswith(".bias") and dimensions == 1)):
                raise UserError(
                    "the weights of a model must be floating-point numbers",
                    found=f"{name} of type {kind}",
                    where=str(path),
                    fix="save the model as float32, bfloat16 or float16",
                )


def stored_types(folder: Path) -> set[str]:
    """The dtypes of all stored tensors, as named by safetensors or torch. Files that cannot be read are skipped."""
    found: set[str] = set()
    for path in _files(folder):
        found |= _pickled_types(path) if path.suffix == ".bin" else {kind for kind, _ in _types(path).values()}
    return found


def _files(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.safetensors")), *sorted(folder.glob("pytorch_model*.bin"))]


def _types(path: Path) -> Types:
    """The tensors of a safetensors file; none if it cannot be read."""
    try:
        header, _ = safetensors_header(path)
        header.pop("__metadata__", None)
        return {name: (str(entry["dtype"]), len(entry["shape"])) for name, entry in header.items()}
    except (UserError, KeyError, TypeError):
        return {}


def _pickled_types(path: Path) -> set[str]:
    """The dtypes that the pickle in a file of torch names. It is searched, and not unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            (pickle,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            with archive.open(pickle) as file:
                names = [name.decode() for name in _PICKLED.findall(file.read(MAX_BYTES))]
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return set()
    return {_STORAGES.get(name, name) for name in names}
