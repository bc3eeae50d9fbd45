"""Linear layers by oneDNN against torch's own in float64: values and gradients."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
from rlcore_models.cpu_linear import OneDnnLinear, use_onednn  # noqa: E402
from rlcore_models.products import multiplies  # noqa: E402
from torch import Tensor, nn  # noqa: E402

INPUTS, OUTPUTS = 320, 448


@pytest.mark.numeric
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("frozen", ["nothing", "weight", "input"])
def test_values_and_gradients_equal_float64(bias: bool, frozen: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(INPUTS, OUTPUTS, bias=bias)
    if not multiplies(layer.weight):
        pytest.skip("oneDNN is not used on this processor")
    exact = copy.deepcopy(layer).double()
    use_onednn(layer)
    assert isinstance(layer, OneDnnLinear)
    x_BTI, grad_BTO = torch.randn(2, 35, INPUTS), torch.randn(2, 35, OUTPUTS)
    found, expected = (_run(one, x_BTI, grad_BTO, frozen) for one in (layer, exact))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == torch.float32
        # Sums of at most 448 products of standard normal numbers with rounding errors of 6e-8 each.
        assert float((value - expected[name]).abs().max()) < 1e-4, name


def _run(layer: nn.Linear, x_BTI: Tensor, grad_BTO: Tensor, frozen: str) -> dict[str, Tensor]:
    dtype = layer.weight.dtype
    x_BTI = x_BTI.to(dtype).detach().requires_grad_(frozen != "input")
    layer.weight.requires_grad_(frozen != "weight")
    output_BTO = layer(x_BTI)
    output_BTO.backward(grad_BTO.to(dtype))
    named = {"input": x_BTI.grad, "weight": layer.weight.grad, "bias": None if layer.bias is None else layer.bias.grad}
    return {"output": output_BTO.detach(), **{name: grad for name, grad in named.items() if grad is not None}}


def test_only_large_float32_layers_change_and_checkpoints_do_not() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(INPUTS, OUTPUTS), nn.Linear(INPUTS, OUTPUTS).bfloat16())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    use_onednn(model)
    kinds = [type(part) for part in model]
    assert kinds == [nn.Linear, OneDnnLinear if multiplies(model[1].weight) else nn.Linear, nn.Linear]
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
