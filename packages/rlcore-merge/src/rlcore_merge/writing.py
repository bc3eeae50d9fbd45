"""Write safetensors files range by range at precomputed positions, into a folder that appears only when it is complete.

The format: the length of the header in 8 bytes, a JSON header, and the tensors without gaps. Each thread takes the next
range of elements, reads, converts and writes it, so no tensor is held in memory: memory use depends on the number of
threads and not on the size of the model. Checksums of the sources are verified together with the tensors.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from rlcore.atomic_files import beside
from rlcore.console.wording import counted
from rlcore.errors import UserError
from threadpoolctl import threadpool_limits
from zlib_ng.zlib_ng import crc32, crc32_combine

from rlcore_merge.tensors import KINDS, Array, Kind, Record, Shape, Tensor, convert, output_kind, ranges, to_float32

ALIGNMENT = 8
CHUNK = 1 << 22
"""Bytes of a record that one thread verifies at a time."""


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


def plan(
    tensors: Mapping[str, Tensor],
    target: str | None,
    *,
    limit: int,
    buffers: Collection[str] = (),
    stem: str = "model",
    metadata: Mapping[str, str] | None = None,
) -> Plan:
    """Assign tensors to files. Tensors keep their order, and a file ends before it exceeds ``limit`` bytes.

    Floating-point tensors other than ``buffers`` are converted to the kind with the name ``target``, if it is not None.
    ``metadata`` are written to every file.
    """
    kinds = {key: output_kind(tensor) for key, tensor in tensors.items()}
    if target is not None:
        kinds |= {key: KINDS[target] for key, kind in kinds.items() if kind.floating and key not in buffers}
    shards: list[list[str]] = [[]]
    size = 0
    for key, tensor in tensors.items():
        grows = prod(tensor.shape) * kinds[key].size
        if shards[-1] and size + grows > limit:
            shards.append([])
            size = 0
        shards[-1].append(key)
        size += grows
    files = []
    for number, keys in enumerate(shards, start=1):
        part = f"-{number:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
        described = {key: (kinds[key], tensors[key].shape) for key in keys}
        start, positions = header(described, {"format": "pt", **(metadata or {})})
        total = len(start) + sum(prod(shape) * kind.size for kind, shape in described.values())
        files.append(File(f"{stem}{part}.safetensors", start, positions, total))
    return Plan(tensors, kinds, tuple(files))


def header(tensors: Mapping[str, tuple[Kind, Shape]], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The header of a file with these tensors, and the position of each tensor in the file."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    offsets, at = {}, 0
    # Tensors with wide elements come first, so that every tensor is aligned to its element size.
    for name in sorted(tensors, key=lambda name: (-tensors[name][0].size, name)):
        kind, shape = tensors[name]
        size = prod(shape) * kind.size
        entries[name] = {"dtype": kind.name, "shape": list(shape), "data_offsets": [at, at + size]}
        offsets[name] = at
        at += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % ALIGNMENT)
    return struct.pack("<Q", len(text)) + text, {name: 8 + len(text) + offset for name, offset in offsets.items()}


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
    if not (paths := verification.unverified):
        return []
    files = counted(len(paths), "file")
    return [f"{files} saved without checksums, such as {min(paths).name}: damage cannot be detected"]


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
        for start, count in ranges(tensor):
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
        found = f"{float(np.abs(values[beyond]).max()):g}, but the largest fp16 number is 65504"
        raise UserError(f"{key} overflows fp16", found=found, fix="pass --dtype bf16 or --dtype fp32")


class Verification:
    """Hands out the chunks of records to verify, each once, so that they are read together with the tensors in them."""

    def __init__(self) -> None:
        self.unverified: set[Path] = set()
        """Files that were saved without checksums."""
        self._found: dict[Record, dict[int, int]] = {}
        """The checksums of the chunks that were handed out, -1 until they are computed."""
        self._lock = threading.Lock()

    def of(self, tensor: Tensor) -> Iterator[Callable[[], int]]:
        """Functions that verify the chunks in which a tensor is stored. They may run in any thread.

        The functions raise `UserError` if a record is damaged.
        """
        for stored in tensor.leaves():
            record = stored.record
            if record is None:
                continue
            if record.checksum is None:
                self.unverified.add(record.file.path)
                continue
            begin = stored.position - record.position
            end = begin + stored.span * stored.kind.size
            yield from self._chunks(record, begin // CHUNK, -(-end // CHUNK))

    def rest(self) -> Iterator[Callable[[], int]]:
        """Functions that verify the remaining chunks of the records: all bytes count for the checksum."""
        for record in self._found:
            yield from self._chunks(record, 0, _chunk_count(record))

    def _chunks(self, record: Record, first: int, stop: int) -> Iterator[Callable[[], int]]:
        found = self._found.setdefault(record, {})
        for index in range(first, stop):
            with self._lock:
                handed_out = index in found
                found.setdefault(index, -1)
            if not handed_out:
                yield partial(self._verify, record, index)

    def _verify(self, record: Record, index: int) -> int:
        content = memoryview(record.file.buffer)[record.position : record.end]
        checksum = crc32(content[index * CHUNK : (index + 1) * CHUNK])
        with self._lock:
            found = self._found[record]
            found[index] = checksum
            if len(found) < _chunk_count(record) or -1 in found.values():
                return 0
        whole = 0
        for each, part in sorted(found.items()):
            whole = crc32_combine(whole, part, len(content[each * CHUNK : (each + 1) * CHUNK]))
        record.verify(whole)
        return 0


def _chunk_count(record: Record) -> int:
    return max(1, -(-record.size // CHUNK))


def check_new(out: Path) -> None:
    """Raise `UserError` if the output exists, unless it is an empty folder that a rename can replace."""
    if out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
        if not os.path.ismount(out) and out.resolve() != Path.cwd():
            return
        found = "a mount point" if os.path.ismount(out) else "the current folder"
        fix = f"pass a folder inside it, such as {out / 'merged'}"
        raise UserError("the output folder cannot be replaced", found=found, where=str(out), fix=fix)
    if out.exists() or out.is_symlink():
        entries = f"{sum(1 for _ in out.iterdir())} entries" if out.is_dir() else "a link"
        found = "a file" if out.is_file() else entries
        fix = "pass another --out, or remove the folder first"
        raise UserError("the output folder already exists", found=found, where=str(out), fix=fix)


def check_room(out: Path, size: int) -> None:
    """Raise `UserError` if the disk has less than ``size`` bytes free."""
    existing = next(folder for folder in out.absolute().parents if folder.is_dir())
    usage = shutil.disk_usage(existing)
    if usage.total and usage.free < size:  # a file system of size 0 is no disk: creating the folder raises its error
        found = f"{usage.free / 1e9:,.2f} GB free, but the output needs {size / 1e9:,.2f} GB"
        fix = "free disk space, or pass an --out on another disk"
        raise UserError("there is not enough disk space", found=found, where=str(existing), fix=fix)


@contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """A folder ``.NAME.partial`` that is renamed to ``out`` when the block ends without an error.

    If a folder of that name is locked, another process is writing it. If it is not locked, a killed process left it,
    and it is emptied.

    Raises:
        UserError: another process is writing it, it cannot be written, or it exists by the time it is complete.
    """
    unfinished = beside(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = _take(unfinished)
    except OSError as error:
        raise UserError("the output folder cannot be written", found=str(error), where=str(out)) from None
    try:
        yield unfinished
        check_new(out)
        unfinished.rename(out)
    except OSError as error:
        found = f"{error.strerror or error}; {shutil.disk_usage(out.parent).free / 1e9:,.2f} GB are free"
        raise UserError(
            "the output cannot be written", found=found, where=str(out), fix="free disk space or grant the permission"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        os.close(lock)


def _take(folder: Path) -> int:
    """Create the folder or take over one that a killed process left. The returned descriptor holds its lock."""
    folder.mkdir(exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        found = f"{folder.name} is locked"
        fix = "wait for it to finish, or pass another --out"
        raise UserError("another process is writing this output", found=found, where=str(folder), fix=fix) from None
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return lock
