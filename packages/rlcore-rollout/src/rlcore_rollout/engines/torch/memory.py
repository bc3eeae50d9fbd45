"""Returns freed memory to the system."""

from __future__ import annotations

import ctypes


def return_freed_memory() -> None:
    """Return freed heap memory to the system, where the C library can.

    glibc keeps what was freed for later allocations of similar sizes. Sampling and training alternate and allocate
    tensors of different sizes, so each would add its own peak to the memory of the process.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
