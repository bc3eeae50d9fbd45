"""Choose what glibc does with the freed memory of tensors: keep it for the next ones, or return it to the system.

Memory that is returned must be cleared by the system before it is used again: 10 GB in a step of supervised training
of a model with 135 million parameters, a quarter of its time. Memory that is kept has gaps between the tensors, which
differ in size, and `malloc` fits aligned tensors into them badly. With an adapter, the gaps are as large as the stored
activations. Other C libraries are left as they are. Does not import torch.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""The numbers of these limits in ``malloc.h``."""
SMALL, LARGE = 2 * 2**20, 32 * 2**20
"""Bytes. Larger tensors get pages of their own, which are returned when the tensor is freed. glibc allows no higher
limit than the second."""


def choose_allocation(*, keep_freed: bool) -> None:
    """Keep freed memory for the next tensors of up to 32 MiB, or return that of all above 2 MiB at once."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.mallopt(M_MMAP_THRESHOLD, LARGE if keep_freed else SMALL)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1 if keep_freed else SMALL)


def return_freed_memory(*, above: int = 0) -> None:
    """Return freed heap memory to the system if there are more than ``above`` bytes of it.

    The next step must have the returned pages cleared again, which takes a third of a step of a small model.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return
    if above and hasattr(library, "mallinfo2"):  # from glibc 2.33 on
        library.mallinfo2.restype = _HeapSizes
        if library.mallinfo2().free <= above:
            return
    library.malloc_trim(0)


class _HeapSizes(ctypes.Structure):
    """``struct mallinfo2`` in ``malloc.h``."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("_0", "_1", "_2", "_3", "_4", "_5", "_6", "used", "free", "_9")]
