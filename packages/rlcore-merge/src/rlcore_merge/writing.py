"""Write safetensors files range by range at precomputed positions, so that no tensor is held in memory.

Each thread takes the next range of elements, reads, converts and writes it. Memory use depends on the number of threads
and not on the size of the model.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
from rlcore.console.wording import counted
from rlcore.errors import UserError
from threadpoolctl import threadpool_limits

from rlcore_merge import safetensors_files
from rlcore_merge.dtypes import KINDS, REQUESTED, Array, Kind, convert, to_float32
from rlcore_merge.records import Verification
from rlcore_merge.tensors import Tensor, ranges

RANGE = 1 << 17
"""Elements per range: few enough to fit the processor's cache and to reuse freed memory."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to write: its header and the position of each tensor."""

    name: str
    header: bytes
    positions: Mapping[str, int]
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All files of the output."""

    tensors: Mapping[str, Tensor]
    kinds: Mapping[str, Kind]
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.size for file in self.files)


def output_kind(tensor: Tensor) -> Kind:
    """The kind in which a tensor is written if the dtype is kept."""
    kind: Kind = getattr(tensor, "output_kind", tensor.kind)
    return kind


def plan(
    tensors: Mapping[str, Tensor],
    *,
    dtype: str,
    buffers: frozenset[str],
    limit: int,
    stem: str = "model",
    metadata: Mapping[str, str] | None = None,
) -> Plan:
    """Assign tensors to files. Tensors keep their order, and a file ends before it exceeds ``limit`` bytes.

    ``metadata`` are written to every file.
    """
    name = REQUESTED[dtype]
    target = None if name is None else KINDS[name]
    kinds = {
        key: target
        if target is not None and output_kind(tensor).floating and key not in buffers
        else output_kind(tensor)
        for key, tensor in tensors.items()
    }
    shards: list[list[str]] = [[]]
    size = 0
    for key, tensor in tensors.items():
        grows = prod(tensor.shape) * kinds[key].size
        if shards[-1] and size + grows > limit:
            shards.append([])
            size = 0
        shards[-1].append(key)
        size += grows
    names = [f"{stem}.safetensors"]
    if len(shards) > 1:
        names = [f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    files = []
    for file_name, keys in zip(names, shards, strict=True):
        described = {key: (kinds[key], tensors[key].shape) for key in keys}
        header, positions = safetensors_files.header(described, {"format": "pt", **(metadata or {})})
        total = len(header) + sum(prod(shape) * kind.size for kind, shape in described.values())
        files.append(File(file_name, header, positions, total))
    return Plan(tensors, kinds, tuple(files))


def write(plan: Plan, folder: Path, *, threads: int, on_written: Callable[[int], None]) -> list[str]:
    """Write all files and, if there are several, the index. Return a note about sources without checksums.

    Args:
        plan: the files to write
        folder: the output folder
        threads: number of threads
        on_written: called with the number of bytes after each write

    Raises:
        UserError: a value overflows the dtype, or a source is damaged.
        OSError: the disk is full.
    """
    verification = Verification()
    for file in plan.files:
        descriptor = os.open(folder / file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.truncate(descriptor, file.size)
            _put(descriptor, file.header, 0)
            # Each range has a thread; BLAS threads on top would oversubscribe the cores.
            with threadpool_limits(1, "blas"):
                _in_threads(_work(plan, file, descriptor, verification), threads, on_written)
        finally:
            os.close(descriptor)
    _in_threads(verification.rest(), threads, on_written)
    if len(plan.files) > 1:
        index = {
            "metadata": {"total_size": plan.size - sum(len(file.header) for file in plan.files)},
            "weight_map": {key: file.name for file in plan.files for key in file.positions},
        }
        stem = plan.files[0].name.partition("-")[0]
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    return _without_checksums(verification.unverified)


def _without_checksums(paths: Collection[Path]) -> list[str]:
    if not paths:
        return []
    first = min(paths)
    return [f"{counted(len(paths), 'file')} saved without checksums, such as {first.name}: damage cannot be detected"]


def _in_threads(work: Iterator[Callable[[], int]], threads: int, on_written: Callable[[int], None]) -> None:
    lock = threading.Lock()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not failures:
                with lock:
                    step = next(work, None)
                if step is None:
                    return
                on_written(step())
        except BaseException as error:
            failures.append(error)

    helpers = [threading.Thread(target=run, daemon=True) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    run()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]


def _work(plan: Plan, file: File, descriptor: int, verification: Verification) -> Iterator[Callable[[], int]]:
    """Steps that write a file and verify its sources. Each returns the number of bytes that it wrote."""
    for key, position in file.positions.items():
        tensor = plan.tensors[key]
        yield from verification.of(tensor)
        for start, count in ranges(tensor, RANGE):
            yield partial(_write_range, plan, key, start, count, descriptor, position)


def _write_range(plan: Plan, key: str, start: int, count: int, descriptor: int, position: int) -> int:
    tensor, kind = plan.tensors[key], plan.kinds[key]
    stored = tensor.read(start, count)
    converted = convert(stored, tensor.kind, kind)
    if kind.name == "F16" and tensor.kind is not kind:
        _check_overflow(key, stored, converted, tensor.kind)
    data = np.ascontiguousarray(converted).reshape(-1).view(np.uint8).data
    _put(descriptor, data, position + start * kind.size)
    return len(data)


def _put(descriptor: int, data: bytes | memoryview, position: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def _check_overflow(key: str, stored: Array, converted: Array, kind: Kind) -> None:
    if not np.isinf(converted).any():
        return
    values = to_float32(stored, kind)
    beyond = np.isinf(converted) & np.isfinite(values)
    if beyond.any():
        raise UserError(
            f"{key} overflows fp16",
            found=f"{float(np.abs(values[beyond]).max()):g}, but the largest fp16 number is 65504",
            fix="pass --dtype bf16 or --dtype fp32",
        )
