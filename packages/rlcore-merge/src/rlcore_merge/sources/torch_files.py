"""Read ``torch.save`` files: zip archives with one pickle and one uncompressed record per storage."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import UserError

from rlcore_merge.sources import pickles
from rlcore_merge.sources.pickles import Distributed, Strided
from rlcore_merge.tensors import COPY_AGAIN, MappedFile, Record, Stored

_LOCAL_HEADER = 30
"""Bytes of a zip member's local header before its name; it ends with the lengths of name and extra field."""
_SIGNATURE = b"PK\x03\x04"
_UTF8 = 0x800
"""The flag of a member with a UTF-8 name."""
_ENCRYPTED = 0x1 | 0x40 | 0x2000

_TENSORS, _CONTAINERS = (Strided, Distributed), (dict, list, tuple, set)
_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})


def absent(name: str, folder: Path) -> str:
    """What is found instead of a file in a folder."""
    path = folder / name
    return f"{name} is not a regular file" if os.path.lexists(path) and not path.is_file() else f"no {name}"


class _Window(io.RawIOBase):
    """A range of a mapped file as a file object, which `zipfile` can search without copying the rest."""

    def __init__(self, file: MappedFile, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        count = left if size is None or size < 0 else min(size, left)
        begin = self._start + self._at
        self._at += count
        return bytes(self._file.buffer[begin : begin + count])


class TorchFile:
    """An archive, which may be part of a larger file. Opening it reads its table of contents and its pickle."""

    def __init__(self, file: MappedFile, start: int = 0, size: int | None = None) -> None:
        self.file = file
        where = str(file.path)
        size = file.size - start if size is None else size
        beginning = bytes(file.buffer[start : start + 4])
        if beginning != _SIGNATURE:
            raise _not_an_archive(file, beginning)
        try:
            self._records = _table(file, start, size)
            # Storages are verified when their tensors are read, and all other records here.
            others = {name: record.read() for name, record in self._records.items() if not name.startswith("data/")}
            pickled, order = others["data.pkl"], others.get("byteorder", b"little")
        except UserError:
            raise
        except Exception as error:  # a damaged archive raises anything
            raise _damaged_archive(file, error) from None
        if order != b"little":
            found = order[:20].decode("ascii", "replace")
            raise UserError("checkpoints of big-endian machines are not supported", found=found, where=where)
        self.content: Any = pickles.load(pickled, where)

    def stored(self, tensor: Strided) -> Stored:
        """The location of a tensor's elements.

        Raises:
            UserError: the storage is missing or has another size, or the tensor is not inside it.
        """
        storage, where = tensor.storage, str(self.file.path)
        record = self._records.get(f"data/{storage.key}")
        if record is None:
            found = f"the storage {storage.key} is missing"
            raise UserError("a checkpoint file is incomplete", found=found, where=where, fix=COPY_AGAIN)
        if not storage.size <= record.size < storage.size + storage.alignment:
            raise self.file.damaged(f"the storage {storage.key} has {record.size:,} bytes instead of {storage.size:,}")
        position = record.position + tensor.offset * tensor.kind.size
        return Stored(self.file, position, tensor.kind, tensor.shape, tensor.strides, record)

    def tensors(self) -> dict[str, Stored]:
        """The tensors of a state dict, which may be under the key ``state_dict``. Other values are ignored.

        Raises:
            UserError: the file is not a state dict, or it contains tensors in a form that is not supported.
        """
        content = self.content
        if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
            content = content["state_dict"]
        where = str(self.file.path)
        if not isinstance(content, Mapping):
            raise UserError("the file is not a state dict", found=type(content).__name__, where=where)
        seen: set[int] = set()
        others = ((name, value) for name, value in content.items() if not isinstance(value, Strided))
        lost = [str(name)[:100] for name, value in others if _has_tensors(value, seen)]
        if lost:
            found = f"{lost[0]} is a part of a tensor or contains several tensors"
            fix = "save model.state_dict(), or pass the folder with the files of all processes"
            raise UserError("the file is not a complete, flat state dict", found=found, where=where, fix=fix)
        return {name: self.stored(value) for name, value in content.items() if isinstance(value, Strided)}

    @property
    def identity(self) -> str:
        """A digest of the checksums of all records, which changes with the content."""
        checksums = sorted((name, record.checksum) for name, record in self._records.items())
        return hashlib.sha256(json.dumps(checksums).encode()).hexdigest()


def _has_tensors(value: Any, seen: set[int]) -> bool:
    """Whether a container that is not in ``seen`` has tensors at any depth."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _TENSORS):
            return True
        if isinstance(each, _CONTAINERS) and id(each) not in seen:
            seen.add(id(each))
            inside = each.values() if isinstance(each, dict) else each
            waiting.extend(item for item in inside if type(item) not in _PLAIN)
    return False


def _table(file: MappedFile, start: int, size: int) -> dict[str, Record]:
    """The records by their name without the name of the archive."""
    with zipfile.ZipFile(_Window(file, start, size)) as archive:
        entries = archive.infolist()
    # torch.save computes either all checksums or, with set_crc32_options(False), none.
    recorded = any(info.CRC for info in entries)
    records: dict[str, Record] = {}
    for info in entries:
        prefix, _, name = info.filename.partition("/")
        record = _record(file, info, start, recorded=recorded)
        if name in records or prefix != entries[0].filename.partition("/")[0]:
            raise zipfile.BadZipFile(f"{info.filename} is a second record of this name")
        if record.end > start + size:
            raise zipfile.BadZipFile(f"{info.filename} ends after the archive")
        records[name] = record
    return records


def _record(file: MappedFile, info: zipfile.ZipInfo, start: int, *, recorded: bool) -> Record:
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise zipfile.BadZipFile("a compressed record")
    if info.flag_bits & _ENCRYPTED:
        raise zipfile.BadZipFile("an encrypted record")
    header = start + info.header_offset
    name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
    begin = file.buffer[header : header + _LOCAL_HEADER + len(name)]
    if begin[:4] != _SIGNATURE or begin[26:28] != struct.pack("<H", len(name)) or begin[_LOCAL_HEADER:] != name:
        # The table of contents refers to another place: the data would be wrong.
        raise file.damaged(f"the header of record {info.filename} does not match the table of contents")
    (extra,) = struct.unpack("<H", begin[28:_LOCAL_HEADER])
    position = header + _LOCAL_HEADER + len(name) + extra
    return Record(file, position, info.file_size, info.CRC if recorded else None, info.filename)


def _not_an_archive(file: MappedFile, beginning: bytes) -> UserError:
    old = beginning[:1] == b"\x80"
    found = "the format of torch before 1.6" if old else "not a torch.save archive"
    fix = "load it with torch and save it again" if old else COPY_AGAIN
    return UserError("a checkpoint file cannot be read", found=found, where=str(file.path), fix=fix)


def _damaged_archive(file: MappedFile, error: Exception) -> UserError:
    if isinstance(error, zipfile.BadZipFile) and str(error) == "File is not a zip file":
        found = f"the end of the archive is missing after {file.size:,} bytes"
        return UserError("a checkpoint file is truncated", found=found, where=str(file.path), fix=COPY_AGAIN)
    return file.damaged(f"its table of contents cannot be read: {type(error).__name__}: {error}")
