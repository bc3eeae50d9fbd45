"""Checksums of the records in ``torch.save`` archives, verified chunk by chunk while the tensors are read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import UserError
from zlib_ng.zlib_ng import crc32, crc32_combine

from rlcore_merge.mapped_file import MappedFile

if TYPE_CHECKING:
    from rlcore_merge.tensors import Tensor

CHUNK = 1 << 22
"""Bytes that one thread verifies at a time."""
COPY_AGAIN = "copy or save the file again"


@dataclass(frozen=True, slots=True)
class Record:
    """A range of a file with one checksum."""

    file: MappedFile
    position: int
    size: int
    checksum: int | None
    """CRC-32; None if the file was saved without checksums."""
    name: str

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.position + self.size

    def read(self) -> bytes:
        """The verified content. Raises `UserError` if it is damaged."""
        content = bytes(self.file.buffer[self.position : self.end])
        if self.checksum is not None and crc32(content) != self.checksum:
            raise self.damaged()
        return content

    def damaged(self) -> UserError:
        """The error for content that does not match the checksum."""
        return UserError(
            "a checkpoint file is damaged",
            found=f"the checksum of record {self.name} does not match its content",
            where=str(self.file.path),
            fix=COPY_AGAIN,
        )


@dataclass(slots=True)
class _Progress:
    """The checksums of a record's chunks that are already computed."""

    record: Record
    waiting: list[bool] = field(init=False)
    """Whether a chunk still has to be handed out."""
    found: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting = [True] * max(1, -(-self.record.size // CHUNK))

    def range_of(self, index: int) -> tuple[int, int]:
        begin = index * CHUNK
        return begin, min(begin + CHUNK, self.record.size)


class Verification:
    """Hands out the chunks of records to verify, each once, so that they are read together with the tensors in them."""

    def __init__(self) -> None:
        self.unverified: set[Path] = set()
        """Files that were saved without checksums."""
        self._records: dict[Record, _Progress] = {}
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
            progress = self._records.setdefault(record, _Progress(record))
            begin = stored.position - record.position
            end = begin + stored.span * stored.kind.size
            yield from self._hand_out(progress, begin // CHUNK, -(-end // CHUNK))

    def rest(self) -> Iterator[Callable[[], int]]:
        """Functions that verify the remaining chunks of the records: all bytes count for the checksum."""
        for progress in self._records.values():
            yield from self._hand_out(progress, 0, len(progress.waiting))

    def _hand_out(self, progress: _Progress, begin: int, end: int) -> Iterator[Callable[[], int]]:
        for index in range(begin, end):
            if progress.waiting[index]:
                progress.waiting[index] = False
                yield partial(self._verify, progress, index)

    def _verify(self, progress: _Progress, index: int) -> int:
        record = progress.record
        begin, end = progress.range_of(index)
        checksum = crc32(memoryview(record.file.buffer)[record.position + begin : record.position + end])
        with self._lock:
            progress.found[index] = checksum
            if len(progress.found) < len(progress.waiting):
                return 0
        whole = 0
        for each in range(len(progress.waiting)):
            begin, end = progress.range_of(each)
            whole = crc32_combine(whole, progress.found[each], end - begin)
        if whole != record.checksum:
            raise record.damaged()
        return 0
