"""Read GGUF files of llama.cpp: decoders, dequantised to float32 by the gguf library range by range.

The values are those of transformers' ``from_pretrained(..., gguf_file=)``. transformers also converts the tokenizer,
for which it needs torch.

Legend: ``_RB`` bytes of the stored rows, ``_RC`` elements of rows, ``_E`` elements of a tensor in row-major order.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from rlcore.errors import NotInstalledError, UserError
from rlcore.plugins.loading import pip_line

from rlcore_merge.checkpoint import Checkpoint, Request
from rlcore_merge.sources import gguf_header
from rlcore_merge.sources.gguf_header import FREQUENCIES, Described, Header, Model, model_of
from rlcore_merge.tensors import KINDS, Array, Kind, Shape, Stored, Tensor

_LINK = "model.gguf"


@dataclass(frozen=True, slots=True)
class Dequantised:
    """A tensor in float32, computed from rows of blocks as it is read."""

    stored: Stored
    """The bytes of the rows, as a matrix."""
    type: gguf.GGMLQuantizationType
    shape: Shape
    order_R: npt.NDArray[np.int64] | None = None
    """The stored row of each row; None if they are stored in order."""
    offset: float = 0.0
    """Subtracted from each element."""

    @property
    def kind(self) -> Kind:
        """See `Tensor.kind`."""
        return KINDS["F32"]

    def leaves(self) -> Iterable[Stored]:
        """See `Tensor.leaves`."""
        return (self.stored,)

    def read(self, start: int, count: int) -> Array:
        """See `Tensor.read`. Dequantises the rows that the range touches."""
        width = self.shape[-1]
        first, end = start // width, -(-(start + count) // width)
        stored_RB = self.stored.array()
        rows_RB = stored_RB[first:end] if self.order_R is None else stored_RB[self.order_R[first:end]]
        with np.errstate(all="ignore"):  # scales of damaged blocks may be infinite or NaN
            values_RC = gguf.dequantize(np.ascontiguousarray(rows_RB), self.type)
            if self.offset:
                values_RC = values_RC - np.float32(self.offset)
        values_E: Array = values_RC.reshape(-1)[start - first * width :][:count]
        return values_E


def open_file(path: Path, request: Request) -> Checkpoint:
    """Read the header of a file, and convert its configuration and tokenizer unless a base has them.

    Raises:
        UserError: the file is damaged, its architecture is not supported, or its tokenizer cannot be converted.
    """
    header = gguf_header.read(path)
    try:
        model = model_of(header)
        tensors = _tensors(header, model)
    except ValueError as error:
        fix = "convert the original model, or use a file of a supported architecture"
        raise UserError("a GGUF file cannot be converted", found=str(error), where=str(path), fix=fix) from None
    checkpoint = Checkpoint(
        layout="gguf",
        folder=path,
        tensors=tensors,
        companions=[request.base] if request.base is not None else [],
        inputs=[path],
        identity={path.name: hashlib.sha256(header.file.buffer[: header.data]).hexdigest()},
    )
    if request.base is None:
        folder = Path(tempfile.mkdtemp(prefix="rlcore-gguf-"))
        weakref.finalize(checkpoint, shutil.rmtree, folder, ignore_errors=True)
        _convert(model, path, folder)
        checkpoint.companions.append(folder)
        checkpoint.notes.extend(model.notes)
    return checkpoint


def _tensors(header: Header, model: Model) -> dict[str, Tensor]:
    """The tensors under the names of transformers. Raises `ValueError` unless they are those of the model."""
    if header.data > header.file.size:
        raise ValueError(f"it ends after the header, at {header.file.size:,} bytes")
    stored = {name: _stored(header, name, described) for name, described in header.tensors.items()}
    _check_apart(stored)
    architecture, config = model.architecture, model.config
    heads = {"attn_q.weight": config["num_attention_heads"], "attn_k.weight": config["num_key_value_heads"]}
    if config["num_hidden_layers"] > len(stored):
        raise ValueError(f"it has {len(stored):,} tensors for {config['num_hidden_layers']:,} layers")
    tensors: dict[str, Tensor] = {}
    for name, ours, shape in model.tensors():
        described = header.tensors.get(name)
        if described is None:
            raise ValueError(f"it has no tensor {name}")
        if described.shape != shape:
            raise ValueError(f"{name} has the shape {list(described.shape)}, and the metadata imply {list(shape)}")
        paired = heads.get(name.split(".", 2)[-1]) if architecture.paired_rows else None
        tensors[ours] = Dequantised(
            stored.pop(name),
            gguf.GGMLQuantizationType(described.type),
            shape,
            None if paired is None else _first_halves_first(shape[0], paired),
            architecture.norm_offset if name.endswith("norm.weight") else 0.0,
        )
    stored.pop(FREQUENCIES, None)
    if stored:
        raise ValueError(f"it has the unsupported tensor {min(stored)}")
    return tensors


def _stored(header: Header, name: str, described: Described) -> Stored:
    """The bytes of a tensor as a matrix of rows."""
    try:
        block, size = _block(described.type)
    except ValueError as error:
        raise ValueError(f"{name} has {error}") from None
    *outer, width = described.shape
    if width % block:
        raise ValueError(f"{name} has rows of {width:,} elements, which is not a multiple of {block}")
    rows = (prod(outer), width // block * size)
    end = header.data + described.offset + prod(rows)
    if end > header.file.size:
        raise ValueError(f"{name} ends at {end:,} bytes, and the file at {header.file.size:,}: it is truncated")
    return Stored(header.file, header.data + described.offset, KINDS["U8"], rows)


def _check_apart(stored: Mapping[str, Stored]) -> None:
    """Raise `ValueError` if two tensors share bytes: the output could be much larger than the file."""
    at, last = 0, ""
    for name, tensor in sorted(stored.items(), key=lambda item: item[1].position):
        if tensor.position < at:
            raise ValueError(f"the tensors {last} and {name} overlap")
        at, last = tensor.position + prod(tensor.shape), name


@cache
def _block(number: int) -> tuple[int, int]:
    """The elements and the bytes of a block. Raises `ValueError` for types that gguf cannot dequantise."""
    try:
        kind = gguf.GGMLQuantizationType(number)
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        gguf.dequantize(np.zeros((1, size), np.uint8), kind)
    except (ValueError, KeyError, RuntimeError) as error:  # RuntimeError: gguf cannot dequantise it
        raise ValueError(f"the unsupported type {number}: {error}") from None
    return elements, size


def _first_halves_first(rows: int, heads: int) -> npt.NDArray[np.int64]:
    """The stored row of each row.

    llama.cpp stores the two rows of a rotated pair side by side, and transformers the first rows of all pairs of a head
    before the second ones.
    """
    order_R = np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return np.asarray(order_R, np.int64)


def _convert(model: Model, path: Path, folder: Path) -> None:
    """Write the configuration and the tokenizer of a file into a folder."""
    try:
        _write(model, path, folder)
    except ImportError as error:
        fix = pip_line(["rlcore-merge[gguf]"])
        message = "converting a GGUF file needs transformers and torch"
        raise NotInstalledError(message, found=str(error), where=str(path), fix=fix) from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the tokenizers library raises BaseException where its own code fails
        lines = str(error).splitlines() or [type(error).__name__]
        raise UserError(
            "the tokenizer of a GGUF file cannot be converted",
            found=lines[0][:200],
            where=str(path),
            fix="pass the folder that has the original tokenizer and config.json: --base FOLDER",
        ) from error


def _write(model: Model, path: Path, folder: Path) -> None:
    from transformers import AutoConfig, GenerationConfig, PreTrainedTokenizerFast

    config = AutoConfig.for_model(model.architecture.model_type, **model.config)
    config.architectures = [model.architecture.class_name]
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)
    with tempfile.TemporaryDirectory() as alone:  # so that no other file of the source's folder is read
        (Path(alone) / _LINK).symlink_to(path.resolve())
        here: dict[str, Any] = {"gguf_file": _LINK, "local_files_only": True}
        tokenizer = PreTrainedTokenizerFast.from_pretrained(alone, trust_remote_code=False, **here)
    for key in ("is_local", "local_files_only", "trust_remote_code"):
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.save_pretrained(folder)
