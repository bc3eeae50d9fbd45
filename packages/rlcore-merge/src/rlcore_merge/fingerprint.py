"""A short name for a base model, so that an adapter can say which one it was trained on.

SHA-256 over the names, dtypes and shapes of all tensors, sorted by name, and 16 samples of 64 bytes of each, spread
evenly. It does not depend on how the tensors are divided into files, and takes a fraction of a second for any size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from rlcore_merge.tensors import Tensor, size_of

SAMPLES, SAMPLE_BYTES = 16, 64


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """The first 32 hexadecimal digits."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.kind.name} {list(tensor.shape)}\n".encode())
        size = size_of(tensor)
        each = min(size, max(1, SAMPLE_BYTES // tensor.kind.size))
        for sample in range(SAMPLES if size > SAMPLES * each else 1):
            count = each if size > SAMPLES * each else size
            start = sample * (size - count) // max(SAMPLES - 1, 1)
            total.update(tensor.read(start, count).tobytes())
    return total.hexdigest()[:32]
