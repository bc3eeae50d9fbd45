"""Freed memory of the heap is kept up to a limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Blocks below the limit of mapped memory. The last one separates the others from the end of the heap, which is trimmed.
PROGRAM = """
import ctypes
from rlcore.models.freed_memory import choose_allocation, return_freed_memory
from rlcore.runs.machine import used_bytes
choose_allocation(keep_up_to=2**40)
heap = ctypes.CDLL(None)
heap.malloc.restype, heap.malloc.argtypes, heap.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
blocks = [heap.malloc(2**20) for _ in range(65)]
for block in blocks:
    ctypes.memset(block, 1, 2**20)
for block in blocks[:-1]:
    heap.free(block)
held = used_bytes()
return_freed_memory()
kept = used_bytes()
choose_allocation(keep_up_to=kept - 1)
return_freed_memory()
print(held - kept, held - used_bytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries are left as they are")
def test_freed_memory_is_returned_only_if_the_process_uses_more_than_the_limit() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    returned_below, returned_above = map(int, done.stdout.split())
    assert returned_below < 2**23
    assert returned_above > 2**25
