"""Options of the vllm engine, the table ``rollout.vllm``. Options have the names that vLLM uses."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator
from rlcore.config.schema import Table

DECIDED = {
    "model": "model.path",
    "trust_remote_code": None,
    "tokenizer": "model.path",
    "dtype": "model.dtype",
    "seed": "seed",
    "max_model_len": "rollout.max_context_tokens",
    "max_logprobs": None,
    "logprobs_mode": None,
    "skip_tokenizer_init": None,
    "weight_transfer_config": None,
    "enable_sleep_mode": "rollout.vllm.sleep",
    "kv_cache_memory_bytes": "rollout.vllm.kv_cache_gib",
    "enable_lora": "lora.rank",
    "max_lora_rank": "lora.rank",
    "max_loras": None,
    "limit_mm_per_prompt": "rollout.vllm.max_images",
    "mm_processor_kwargs": "model.images",
    "mm_processor_cache_gb": "rollout.vllm.image_cache_gib",
    "language_model_only": None,
}
"""vLLM arguments that ``arguments`` may not contain, with the key that sets each (None: set by rlcore itself)."""


class VllmEngineConfig(Table):
    """Options of vLLM."""

    tensor_parallel_size: Annotated[int, Field(ge=1)] = 1
    """GPUs that share one copy of the model."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a GPU's memory for weights and cache. A trainer on the same GPU needs the rest."""
    kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """Size of the cache in GiB. None uses the share of ``gpu_memory_utilization``; on a CPU, 1 GiB or two contexts."""
    max_num_seqs: Annotated[int, Field(ge=1)] = 256
    """Maximum number of sequences in a batch."""
    enforce_eager: bool | None = None
    """Disable compilation and CUDA graphs: a faster start but slower steps; None means true on a CPU only."""
    enable_prefix_caching: bool = True
    """Cache prompts for siblings and later turns."""
    max_images: Annotated[int, Field(ge=1)] = 32
    """Maximum number of images in one prompt of a vision-language model."""
    image_cache_gib: Annotated[float, Field(ge=0)] = 0.25
    """Size in GiB of the cache of normalised images. vLLM has two, one in this process and one in its own."""
    sleep: bool = False
    """Release GPU memory while the trainer updates; for a trainer on the same GPU."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Timeout for the start and for loading new weights, in seconds. The engine's process is then terminated."""
    arguments: dict[str, Any] = {}
    """Additional vLLM arguments by name, such as ``max_num_batched_tokens = 4096``."""

    @field_validator("arguments")
    @classmethod
    def _names(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        for name in arguments:
            if name in cls.model_fields:
                raise ValueError(f"{name} has its own key: rollout.vllm.{name}")
            if name in DECIDED:
                key = DECIDED[name]
                raise ValueError(f"{name} is set by {key}" if key else f"{name} is set by rlcore")
        return arguments

    @model_validator(mode="after")
    def _agree(self) -> VllmEngineConfig:
        given = self.model_fields_set
        if self.kv_cache_gib is not None and "gpu_memory_utilization" in given:
            raise ValueError("kv_cache_gib and gpu_memory_utilization both set the size of the cache: use only one")
        tokens = self.arguments.get("max_num_batched_tokens")
        if isinstance(tokens, int) and tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens={tokens} is less than one token for each of max_num_seqs={self.max_num_seqs}"
            )
        return self
