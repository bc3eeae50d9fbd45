"""The memory of the engines, in bytes: their caches of keys and values. Does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcore.models.config_file import read_config
from rlcore.session.memory import own_tokens, processes_of, prompt_lengths, tasks_together
from rlcore.specs import MemoryNeeds, ModelOnDevice

from rlcore_rollout.engines.torch.config import BATCH_TOKENS, CALL_TOKENS, FUSED_BYTES, TorchEngineConfig
from rlcore_rollout.engines.vllm.config import VllmEngineConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

POSITIONS = 64
"""A row of the torch engine's cache grows in multiples of this many tokens."""
ROOM = 1.5
"""While the cache grows, the old and the new one exist."""
LOGITS_COPIES = 6
"""Values per logit at a draw: logits and probabilities, also of the allowed tokens at another temperature."""
VLLM_BYTES = 3 * 2**29
"""The program of vLLM's two processes on a CPU, its scheduler and its worker."""
HIDDEN, FEED_FORWARD = 8, 3
"""Values of a patch in a layer of the vision tower, in widths: of hidden states, projections and the gated MLP."""


def torch_memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return the cache of the sequences that are sampled together, and of their prompts."""
    options, rollout, shape = run.options("engine"), run.config.rollout, model.shape
    assert isinstance(options, TorchEngineConfig)
    token = _token_bytes(model)
    tasks = tasks_together(run)
    trajectories = tasks * rollout.group_size
    rows = min(options.slots, rollout.concurrency, trajectories)
    own = -(-own_tokens(run) // POSITIONS) * POSITIONS
    prompts = prompt_lengths(run)
    # A prompt is kept while it is in use, and its sequences read a working copy.
    cache = ROOM * rows * own + prompts.of(tasks) + prompts.of(min(tasks, options.slots))
    if model.gpu_bytes is None:  # the deterministic mode keeps the cache of every unfinished trajectory
        cache += max(0, min(rollout.concurrency, trajectories) - rows) * own / 2
    prefill = min(BATCH_TOKENS, tasks * prompts.longest) * (6 * shape.width + 4 * shape.feed_forward)
    phase = {
        "KV cache": int(cache * token),
        "sampling": LOGITS_COPIES * 4 * rows * shape.vocabulary + prefill * model.element_bytes,
    }
    if prompts.visual:
        phase["image features"] = _feature_bytes(run, model, min(tasks, options.slots), prompts.visual)
    layers = sum(size * other for name, size, other in shape.matrices if ".layers." in f".{name}")
    fused = layers * model.element_bytes
    if fused <= FUSED_BYTES:  # freed during updates
        phase["fused projections"] = fused
    return MemoryNeeds(phases={"rollout": phase})


def vllm_memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return the memory of vLLM's own processes: a share of the GPU, or on a CPU its weights and cache.

    The trainer sends its weights through a segment of shared memory. Of an adapter only the adapter is sent.
    """
    options = run.options("engine")
    assert isinstance(options, VllmEngineConfig)
    if model.gpu_bytes is not None:
        from rlcore_rollout.engines.vllm.launch import own_gpus

        if own_gpus(options.tensor_parallel_size, processes_of(run)):
            return MemoryNeeds()
        return MemoryNeeds(parts={"vLLM": int(options.gpu_memory_utilization * model.gpu_bytes)})
    context = run.config.rollout.max_context_tokens or 0
    cache = options.kv_cache_gib * 2**30 if options.kv_cache_gib else max(2**30, 2 * context * _token_bytes(model))
    weights = model.shape.parameters * model.element_bytes
    parts = {"vLLM": VLLM_BYTES + weights, "KV cache": int(cache)}
    trained, lora = run.resolved.options.get("trainer"), run.resolved.options.get("lora")
    if trained is not None and not getattr(lora, "wanted", False):
        parts["shared weights"] = weights
    return MemoryNeeds(parts=parts)


def _token_bytes(model: ModelOnDevice) -> int:
    """Keys and values of one token in all layers."""
    return 2 * model.shape.layers * model.shape.key_width * model.element_bytes


def _feature_bytes(run: RunSession, model: ModelOnDevice, prompts: int, visual: int) -> int:
    """The visual features of prompts that are computed together, and the vision tower's hidden states."""
    folder = run.model_here()
    vision: dict[str, Any] = {} if folder is None else read_config(folder).get("vision_config") or {}
    merge = vision.get("spatial_merge_size") or 2
    width = vision.get("embed_dim") or vision.get("hidden_size") or 0
    inner = vision.get("intermediate_size") or width * (vision.get("mlp_ratio") or 4)
    together = max(visual, min(CALL_TOKENS, prompts * visual))
    working = together * merge**2 * (HIDDEN * width + FEED_FORWARD * inner)
    features = prompts * visual * model.shape.width * (1 + len(vision.get("deepstack_visual_indexes") or ()))
    return int((features + working) * model.element_bytes)


__all__ = ["torch_memory", "vllm_memory"]
