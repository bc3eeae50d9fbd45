"""Memory that two processes share without a name, so that none is left behind however they end.

It is read and written with system calls, not mapped: a process that shrinks the memory of the other one must not crash
it.
"""

from __future__ import annotations

import os
from typing import Any, Iterable


def create() -> int:
    """A file descriptor of new memory."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rlcore-transport", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:  # deleted at once
        return os.dup(file.fileno())


class SharedArrays:
    """The memory behind a file descriptor. A message and its answer use it in turn."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def write(self, buffers: Iterable[tuple[int, Any]], size: int) -> None:
        """Write buffers at their offsets. ``size`` includes the padding after the last one, which is not written."""
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, size)
        for offset, data in buffers:
            rest = memoryview(data)
            while len(rest):
                written = os.pwrite(self.descriptor, rest, offset)
                rest, offset = rest[written:], offset + written

    def clear(self) -> None:
        """Free the memory. The next message allocates it again."""
        os.ftruncate(self.descriptor, 0)

    def read(self, size: int) -> bytearray:
        """The first ``size`` bytes.

        Raises:
            EOFError: there are fewer.
        """
        there = os.fstat(self.descriptor).st_size
        if there < size:
            raise EOFError(f"expected {size} bytes of shared memory, found {there}")
        data = bytearray(size)
        rest = memoryview(data)
        while len(rest):
            count = os.preadv(self.descriptor, [rest], size - len(rest))
            if not count:
                raise EOFError(f"expected {size} bytes of shared memory, found {size - len(rest)}")
            rest = rest[count:]
        return data
