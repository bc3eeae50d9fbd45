"""A base that is held in 4 bits a weight: what it needs, and how it is asked of transformers."""

from __future__ import annotations

from typing import Any

from rlcore.config.requirements import unmet
from rlcore.errors import NotInstalledError

NEEDS = ("bitsandbytes>=0.49", "accelerate>=1.15")


def check_installed(quantization: str) -> None:
    """Refuse a quantised base where what computes with it is not there.

    Args:
        quantization: ``none`` or ``nf4``

    Raises:
        NotInstalledError: with the command that brings it.
    """
    if quantization == "none":
        return
    if flaws := [flaw for requirement in NEEDS if (flaw := unmet(requirement))]:
        mend = "pip install 'rlcore[quantization]'"
        wanted = f"model.quantization={quantization} needs {NEEDS[0]}"
        raise NotInstalledError(wanted, found="; ".join(flaws), mend=mend)


def loading_options(quantization: str, *, dtype: Any, device: Any) -> dict[str, Any]:
    """What ``from_pretrained`` is told of it; empty for ``none``. Call `keep_layout` on what it gives.

    QLoRA's NF4 with quantised constants (Dettmers et al. 2023, arXiv:2305.14314, section 3). Embeddings and output
    layer stay whole.

    Args:
        quantization: ``none`` or ``nf4``
        dtype: in which products are computed
        device: where the weights go

    Raises:
        NotInstalledError: what computes with such weights is not there.
    """
    if quantization == "none":
        return {}
    check_installed(quantization)
    from transformers import BitsAndBytesConfig

    settings = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
        load_in_4bit=True,
        bnb_4bit_quant_type=quantization,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": settings, "device_map": {"": device}}


def keep_layout(model: Any) -> None:
    """Let no layer of the model repack its weights.

    On CPUs with bfloat16 products bitsandbytes does so at the first forward pass that is not a training one, and rounds
    the constants of the weights: log-probabilities would depend on what was computed before.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


__all__ = ["check_installed", "keep_layout", "loading_options"]
