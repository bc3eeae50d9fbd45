"""Return freed memory to the system.

glibc keeps what was freed for later allocations of similar sizes. The micro-batches of a training step differ in size,
and so do the tensors of sampling and training, so that each would add its own peak to the memory of the process. Other
C libraries are left as they are. Does not import torch.
"""

from __future__ import annotations

import ctypes

LARGE = 2 * 2**20
"""Bytes. Larger tensors get pages of their own, which are returned when the tensor is freed. By default, glibc raises
this limit up to 32 MB with each large tensor that is freed."""
M_MMAP_THRESHOLD = -3
"""The number of this limit in ``malloc.h``."""


def return_large_tensors() -> None:
    """Return the memory of each large tensor to the system as soon as it is freed, from now on."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.mallopt(M_MMAP_THRESHOLD, LARGE)


def return_freed_memory() -> None:
    """Return freed heap memory to the system."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


__all__ = ["LARGE", "return_freed_memory", "return_large_tensors"]
