"""Choose what glibc does with the freed memory of tensors: keep it for the next ones, or return it to the system.

Memory that is returned must be cleared by the system before it is used again: 10 GB in a step of supervised training
of a model with 135 million parameters, a quarter of its time. Memory that is kept has gaps between the tensors, which
differ in size, and `malloc` fits aligned tensors into them badly. With an adapter, the gaps are as large as the stored
activations. Other C libraries are left as they are. Does not import torch.
"""

from __future__ import annotations

import ctypes

from rlcore.runs.machine import used_bytes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""The numbers of these limits in ``malloc.h``."""
SMALL, LARGE = 2 * 2**20, 32 * 2**20
"""Bytes. Larger tensors get pages of their own, which are returned when the tensor is freed. glibc allows no higher
limit than the second."""
_limit = 0
"""Bytes of the process up to which freed memory is kept."""


def choose_allocation(*, keep_up_to: int) -> None:
    """Keep freed memory for the next tensors of up to 32 MiB while the process uses at most this many bytes.

    With 0, the memory of all tensors above 2 MiB is returned at once.
    """
    global _limit
    _limit = keep_up_to
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.mallopt(M_MMAP_THRESHOLD, LARGE if keep_up_to else SMALL)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1 if keep_up_to else SMALL)
        if keep_up_to:  # sampling and training, which are different threads, use each other's freed memory
            library.mallopt(M_ARENA_MAX, 1)


def return_freed_memory() -> None:
    """Return freed heap memory to the system if the process uses more than it may keep."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim") and used_bytes() > _limit:
        library.malloc_trim(0)
