"""Weights in a folder, as an evaluation passes them to its engine, and the number of CPU threads for a model."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlcore.errors import UserError
from rlcore.models.config_file import read_config
from rlcore.models.fingerprint import safetensors_header
from rlcore.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWeights:
    """A `WeightSource` for a Hugging Face folder, without a loaded module."""

    folder: Path | None
    """None for an engine that provides its own model."""
    version: int = 0
    module: None = None


SMALL_MODEL = 5_000_000
"""Number of parameters below which synchronising threads can take longer than the computation."""

_INTEGER = re.compile(r"[IU]\d+|u?int\d+|BOOL|bool")
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d+)\.")
_COPY = "copy all weight files, and the config.json that belongs to them"
_WAITING = "OMP_WAIT_POLICY"
_TURNS = "GOMP_SPINCOUNT", "1000"
"""Turns of the waiting loop before a thread sleeps: enough to bridge the gap between two short operations."""


def let_waiting_threads_sleep() -> None:
    """Make OpenMP threads sleep soon while they wait, unless ``OMP_WAIT_POLICY`` is set.

    By default they spin for milliseconds. On a busy machine, a spinning thread occupies the core that the other thread
    needs, and a step takes several times as long. OpenMP reads the variables once, when torch is imported, so calling
    this later has no effect.
    """
    if "torch" not in sys.modules and _WAITING not in os.environ:
        os.environ[_WAITING] = "passive"
        os.environ.setdefault(*_TURNS)


def cpu_threads(parameters: int) -> int | None:
    """The number of CPU threads for a model; None keeps the default of torch.

    One for a small model when waiting threads spin (`let_waiting_threads_sleep`). ``OMP_NUM_THREADS`` overrides it.
    """
    spinning = os.environ.get(_WAITING, "").lower() != "passive"
    return 1 if parameters < SMALL_MODEL and spinning and "OMP_NUM_THREADS" not in os.environ else None


_threads_before: int | None = None
"""The number of CPU threads before `limit_threads`; None if it was not changed."""
_keeping = 0
"""How many blocks of `threads_kept` are active."""
_lock = threading.Lock()


def limit_threads(parameters: int) -> None:
    """Use `cpu_threads` from now on, for a model that was loaded on a CPU."""
    global _threads_before
    if threads := cpu_threads(parameters):
        import torch

        if _threads_before is None:
            _threads_before = torch.get_num_threads()
        torch.set_num_threads(threads)


@contextmanager
def threads_kept() -> Iterator[None]:
    """Undo `limit_threads` at the end of the block, or of the last one if several threads have one."""
    global _threads_before, _keeping
    with _lock:
        if _keeping == 0:
            _threads_before = None
        _keeping += 1
    try:
        yield
    finally:
        with _lock:
            _keeping -= 1
            if _keeping == 0 and _threads_before is not None:
                import torch

                torch.set_num_threads(_threads_before)
                _threads_before = None


def check_loaded(loading: Mapping[str, Collection[str]], folder: Path) -> None:
    """Reject a model whose weights do not match its configuration.

    Missing tensors would silently be random, and tensors that are not read belong to a larger model.

    Args:
        loading: the loading information of transformers
        folder: the folder of the model
    """
    for key, message in (
        ("missing_keys", "the weights of the model are incomplete"),
        ("unexpected_keys", "the model folder has more weights than the model of its config.json"),
    ):
        if names := sorted(loading[key]):
            verb = "missing" if key == "missing_keys" else "unread"
            found = f"{counted(len(names), f'{verb} tensor')}, such as {names[0]}"
            raise UserError(message, found=found, where=str(folder), fix=_COPY)


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
                    fix=_COPY,
                )


def check_types(folder: Path) -> None:
    """Reject weights of integers, which loading would silently convert, unless config.json says how to read them.

    Files that cannot be read are skipped, because loading reports them.
    """
    try:
        if json.loads((folder / "config.json").read_text(encoding="utf-8")).get("quantization_config") is not None:
            return
    except (OSError, ValueError, AttributeError, RecursionError):
        return
    for path in _files(folder):
        for name, (kind, dimensions) in _types(path).items():
            if _INTEGER.fullmatch(kind) and (name.endswith(".weight") or (name.endswith(".bias") and dimensions == 1)):
                raise UserError(
                    "the weights of a model must be floating-point numbers",
                    found=f"{name} of type {kind}",
                    where=str(path),
                    fix="save the model as float32, bfloat16 or float16",
                )


def stored_types(folder: Path) -> set[str]:
    """The dtypes of all stored tensors, as named by safetensors or torch. Files that cannot be read are skipped."""
    return {kind for path in _files(folder) for kind, _ in _types(path).values()}


def _files(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.safetensors")), *sorted(folder.glob("pytorch_model*.bin"))]


def _types(path: Path) -> dict[str, tuple[str, int]]:
    """The dtype and the number of dimensions of each tensor in a file; empty if it cannot be read."""
    if path.suffix == ".bin":
        return _types_of_pickle(path)
    try:
        header, _ = safetensors_header(path)
        header.pop("__metadata__", None)
        return {name: (str(entry["dtype"]), len(entry["shape"])) for name, entry in header.items()}
    except (UserError, KeyError, TypeError):
        return {}


def _types_of_pickle(path: Path) -> dict[str, tuple[str, int]]:
    import pickle

    try:
        import torch
    except ImportError:
        return {}
    try:
        tensors = torch.load(path, map_location="meta", weights_only=True, mmap=True)
        return {name: (str(tensor.dtype).removeprefix("torch."), tensor.ndim) for name, tensor in tensors.items()}
    except (OSError, EOFError, RuntimeError, ValueError, AttributeError, pickle.UnpicklingError):
        return {}
