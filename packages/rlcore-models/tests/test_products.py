"""Products by oneDNN against float64, with packed and plain weights."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from rlcore_models.products import SMALLEST, linear, multiplies, pack  # noqa: E402

INPUTS, OUTPUTS = 320, 448

# A new process, because the kernels of earlier tests would be counted.
MANY_SHAPES = """
import ctypes, torch
from rlcore_models.products import linear
class Sizes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "_0 _1 _2 _3 _4 _5 _6 used free _9".split()]
heap = ctypes.CDLL(None)
heap.mallinfo2.restype = Sizes
torch.set_num_threads(1)
x_NI, weight_OI = torch.ones(600, 320), torch.ones(448, 320)
for rows in range(1, 601):
    linear(x_NI[:rows], weight_OI)
    if rows % 200 == 0:
        print(heap.mallinfo2().used)
"""


@pytest.mark.numeric
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_products_equal_float64(dtype: torch.dtype, rows: int) -> None:
    draw = torch.Generator().manual_seed(rows)
    x_NI = torch.randn(rows, INPUTS, generator=draw).to(dtype)
    weight_OI = torch.randn(OUTPUTS, INPUTS, generator=draw).to(dtype)
    bias_O = torch.randn(OUTPUTS, generator=draw).to(dtype)
    turned_OI = weight_OI.T.contiguous().T
    exact_NO = x_NI.double() @ weight_OI.double().T
    # The bound of a sum of I rounded products (Higham 2002, section 3.1), and of rounding the result.
    terms_NO = x_NI.double().abs() @ weight_OI.double().abs().T + bias_O.double().abs()
    width = INPUTS * torch.finfo(torch.promote_types(dtype, torch.float32)).eps + torch.finfo(dtype).eps
    with torch.inference_mode():
        for weight in (weight_OI, turned_OI, pack(weight_OI)):
            for bias, expected_NO in ((None, exact_NO), (bias_O, exact_NO + bias_O.double())):
                found_NO = linear(x_NI, weight, bias)
                assert found_NO.dtype == dtype
                assert bool(((found_NO.double() - expected_NO).abs() <= width * terms_NO).all())


def test_small_weights_and_other_types_are_not_packed() -> None:
    small, integers = torch.ones(10, 10), torch.ones(OUTPUTS, INPUTS, dtype=torch.int8)
    assert OUTPUTS * INPUTS > SMALLEST
    for weight in (small, integers, torch.ones(OUTPUTS, INPUTS, dtype=torch.float64)):
        assert not multiplies(weight)
        assert pack(weight) is weight


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="other C libraries do not count the heap")
def test_kernels_of_many_shapes_do_not_stay_in_memory() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_SHAPES], capture_output=True, text=True, check=True)
    after_200, _, after_600 = map(int, done.stdout.split())
    assert after_600 - after_200 < 2**25  # 160 MiB with the cache's default size
