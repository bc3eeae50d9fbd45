"""4-bit quantization of a base model: requirements and options for transformers."""

from __future__ import annotations

from typing import Any

from rlcore.config.requirements import unmet
from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line

NEEDS = ("bitsandbytes>=0.49", "accelerate>=1.15")


def check_installed(quantization: str) -> None:
    """Check that the libraries for a quantised base model are installed.

    Args:
        quantization: ``none`` or ``nf4``

    Raises:
        NotInstalledError: a library is missing; the message has the pip command.
    """
    if quantization == "none":
        return
    if problems := [problem for requirement in NEEDS if (problem := unmet(requirement))]:
        fix = pip_line(["rlcore[quantization]"])
        message = f"model.quantization={quantization} needs {NEEDS[0]}"
        raise NotInstalledError(message, found="; ".join(problems), fix=fix)


def loading_options(quantization: str, *, dtype: Any, device: Any) -> dict[str, Any]:
    """Options for ``from_pretrained``; empty for ``none``. Call `keep_layout` on the loaded model.

    QLoRA's NF4 with quantised constants (Dettmers et al. 2023, arXiv:2305.14314, section 3). Embeddings and the
    output layer are not quantised.

    Args:
        quantization: ``none`` or ``nf4``
        dtype: data type for matrix products
        device: device of the weights

    Raises:
        NotInstalledError: a required library is missing.
    """
    if quantization == "none":
        return {}
    check_installed(quantization)
    return {"quantization_config": _settings(quantization, dtype), "device_map": {"": device}}


def _settings(quantization: str, dtype: Any) -> Any:
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type=quantization,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def use_empty_layers(model: Any, quantization: str, *, dtype: Any, device: Any) -> None:
    """Replace the linear layers of a model without weights by quantised ones without weights.

    Args:
        model: its parameters are on the device ``meta``
        quantization: as in `loading_options`, but not ``none``
        dtype: as in `loading_options`
        device: where the weights will be
    """
    from transformers.quantizers.auto import AutoHfQuantizer

    quantizer: Any = AutoHfQuantizer.from_config(_settings(quantization, dtype), pre_quantized=False)
    quantizer.preprocess_model(model=model, device_map={"": device})
    keep_layout(model)


def with_constants(numbers: Any, layer: Any) -> Any:
    """Return a gathered parameter of a quantised layer with its quantization constants, which each process holds."""
    from bitsandbytes.nn.modules import Params4bit

    return Params4bit(numbers, requires_grad=False, quant_state=layer.quant_state, bnb_quantized=True)


def keep_layout(model: Any) -> None:
    """Prevent layers from repacking their weights.

    On CPUs with bfloat16 support, bitsandbytes repacks the weights in the first forward pass in evaluation mode, and
    rounds the quantization constants. Log-probabilities would then depend on earlier computations.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


__all__ = ["check_installed", "keep_layout", "loading_options", "use_empty_layers", "with_constants"]
