"""Read ``torch.save`` files: zip archives with one pickle and one uncompressed record per storage."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from rlcore.errors import UserError

from rlcore_merge import pickles
from rlcore_merge.pickles import Strided
from rlcore_merge.tensors import MappedFile, Stored, row_major

_LOCAL_HEADER = 30
"""Bytes of a zip member's local header before its name; it ends with the lengths of name and extra field."""
_SIGNATURE = b"PK\x03\x04"
_UTF8 = 0x800
"""The flag of a member with a UTF-8 name."""


@dataclass(frozen=True, slots=True)
class _Member:
    position: int
    size: int
    checksum: int


class _Window(io.RawIOBase):
    """A range of a mapped file as a file object, which `zipfile` can search without copying the rest."""

    def __init__(self, file: MappedFile, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

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
        window = _Window(file, start, file.size - start if size is None else size)
        try:
            with zipfile.ZipFile(window) as archive:
                self._members = {
                    info.filename.partition("/")[2]: self._member(info, start) for info in archive.infolist()
                }
                names = [info.filename for info in archive.infolist()]
                pickled = archive.read(next(name for name in names if name.endswith("/data.pkl")))
                order = next((archive.read(name) for name in names if name.endswith("/byteorder")), b"little")
        except (zipfile.BadZipFile, StopIteration, struct.error, OSError, RuntimeError) as error:
            raise _unreadable(file, window, error) from None
        if order != b"little":
            raise UserError(
                "checkpoints of big-endian machines are not supported",
                found=order.decode("ascii", "replace"),
                where=where,
            )
        self.content: Any = pickles.load(io.BytesIO(pickled), where)

    def _member(self, info: zipfile.ZipInfo, start: int) -> _Member:
        if info.compress_type != zipfile.ZIP_STORED:
            raise zipfile.BadZipFile("a compressed record")
        header = start + info.header_offset
        self._check_header(info, header)
        name, extra = struct.unpack("<HH", self.file.buffer[header + _LOCAL_HEADER - 4 : header + _LOCAL_HEADER])
        return _Member(header + _LOCAL_HEADER + name + extra, info.file_size, info.CRC)

    def _check_header(self, info: zipfile.ZipInfo, header: int) -> None:
        """Reject a record with a local header that does not match the table of contents: its data would be wrong."""
        name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
        begin = self.file.buffer[header : header + _LOCAL_HEADER + len(name)]
        if begin[:4] != _SIGNATURE or begin[26:28] != struct.pack("<H", len(name)) or begin[_LOCAL_HEADER:] != name:
            raise UserError(
                "a checkpoint file is damaged",
                found=f"the header of record {info.filename} does not match the table of contents",
                where=str(self.file.path),
                fix="copy or save the file again",
            )

    def stored(self, tensor: Strided) -> Stored:
        """The location of a tensor's elements."""
        member = self._members.get(f"data/{tensor.storage.key}")
        if member is None:
            raise UserError(
                "a checkpoint file is incomplete",
                found=f"the storage {tensor.storage.key} is missing",
                where=str(self.file.path),
                fix="copy or save the file again",
            )
        size = tensor.kind.size
        stored = Stored(self.file, member.position + tensor.offset * size, tensor.kind, tensor.shape, tensor.strides)
        end = stored.position + stored.span * size
        if end > member.position + member.size:
            raise UserError(
                "a checkpoint file is damaged",
                found=f"a tensor of shape {list(tensor.shape)} in a storage of {member.size:,} bytes",
                where=str(self.file.path),
                fix="copy or save the file again",
            )
        whole = stored.position == member.position and end == member.position + member.size
        if whole and member.checksum and tensor.strides == row_major(tensor.shape):
            object.__setattr__(stored, "checksum", member.checksum)
        return stored

    @property
    def checksums(self) -> Mapping[str, int]:
        """CRC-32 of every record by name. Together they identify the content."""
        return {name: member.checksum for name, member in self._members.items()}


def _unreadable(file: MappedFile, window: IO[bytes] | _Window, error: Exception) -> UserError:
    window.seek(0)
    start = window.read(4)
    if start == _SIGNATURE:
        found = f"the end of the archive is missing after {file.size:,} bytes"
        return UserError(
            "a checkpoint file is truncated",
            found=found,
            where=str(file.path),
            fix="copy or save the file again",
        )
    old = start[:1] == b"\x80"
    return UserError(
        "a checkpoint file cannot be read",
        found="the format of torch before 1.6" if old else f"not a torch.save archive ({error})",
        where=str(file.path),
        fix="load it with torch and save it again" if old else "copy or save the file again",
    )
