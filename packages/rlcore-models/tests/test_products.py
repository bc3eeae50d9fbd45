"""Products by oneDNN against float64, with packed and plain weights."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rlcore_models.products import SMALLEST, linear, multiplies, pack  # noqa: E402

INPUTS, OUTPUTS = 320, 448


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
