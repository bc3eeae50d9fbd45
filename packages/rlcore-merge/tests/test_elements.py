"""Conversion between kinds of elements, compared with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rlcore_merge.tensors import KINDS, convert

SPECIAL = [0.0, -0.0, float("inf"), float("-inf"), 1e-40, 3.4028235e38, 1.00390625, 1.01171875, -65504.0, 65519.9]


def stored(tensor: torch.Tensor) -> np.ndarray:
    return (
        tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype is torch.bfloat16 else tensor.numpy()
    ).copy()


@pytest.mark.parametrize("target", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("source", ["F64", "F32", "BF16", "F16"])
def test_every_conversion_rounds_like_torch(source: str, target: str) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(70_001, generator=generator, dtype=torch.float64)
    values = torch.cat(
        [values * 10.0 ** torch.randint(-30, 30, values.shape, generator=generator), torch.tensor(SPECIAL).double()]
    )
    given = values.to(getattr(torch, KINDS[source].torch_name))
    expected = given.float().to(getattr(torch, KINDS[target].torch_name))
    found = convert(stored(given), KINDS[source], KINDS[target])
    assert np.array_equal(found.view(np.uint8), stored(expected).view(np.uint8))


def test_nan_stays_nan_for_any_bit_pattern() -> None:
    bits = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x3F800000], np.uint32)
    found = convert(bits.view(np.float32), KINDS["F32"], KINDS["BF16"])
    assert torch.from_numpy(found.view(np.int16)).view(torch.bfloat16).isnan().tolist() == [True] * 4 + [False]
