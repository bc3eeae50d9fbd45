"""The memory of the engines, in bytes: their caches of keys and values. Does not import torch."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from rlcore.abilities import MultiTurnConfig, TasksConfig
from rlcore.errors import UserError
from rlcore.specs import MemoryNeeds, ModelOnDevice

from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.vllm.config import VllmEngineConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

POSITIONS = 64
"""A row of the torch engine's cache grows in multiples of this many tokens."""
ROOM = 1.5
"""While the cache grows, the old and the new one exist."""
ANSWER_TOKENS = 64
"""A typical observation between two turns."""
TOOL_TOKENS = 128
"""A typical description of tools in a prompt."""
CHARACTERS_PER_TOKEN = 3
VLLM_BYTES = 2**30
"""The program of vLLM's process on a CPU."""


def torch_memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return the cache of the sequences that are sampled together, and of their prompts."""
    options, rollout = run.options("engine"), run.config.rollout
    assert isinstance(options, TorchEngineConfig)
    token = _token_bytes(model)
    tasks = _tasks(run)
    trajectories = tasks * rollout.group_size
    rows = min(options.slots, rollout.concurrency, trajectories)
    own = -(-_own_tokens(run) // POSITIONS) * POSITIONS
    cache = ROOM * rows * own + tasks * _prompt_tokens(run)
    if model.gpu_bytes is None:  # the deterministic mode keeps the cache of every unfinished trajectory
        cache += max(0, trajectories - rows) * own / 2
    return MemoryNeeds(parts={"KV cache": int(cache * token)})


def vllm_memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return the memory of vLLM's own process: a share of the GPU, or on a CPU its weights and cache."""
    options = run.options("engine")
    assert isinstance(options, VllmEngineConfig)
    if model.gpu_bytes is not None:
        return MemoryNeeds(parts={"vLLM": int(options.gpu_memory_utilization * model.gpu_bytes)})
    context = run.config.rollout.max_context_tokens or 0
    cache = options.kv_cache_gib * 2**30 if options.kv_cache_gib else max(2**30, 2 * context * _token_bytes(model))
    weights = model.shape.parameters * model.element_bytes
    return MemoryNeeds(parts={"vLLM": VLLM_BYTES + weights, "KV cache": int(cache)})


def _token_bytes(model: ModelOnDevice) -> int:
    """Keys and values of one token in all layers."""
    return 2 * model.shape.layers * model.shape.key_width * model.element_bytes


def _tasks(run: RunSession) -> int:
    options = run.resolved.options.get("trainer")
    return options.tasks_per_step if isinstance(options, TasksConfig) else run.config.evaluation.tasks or 64


def _own_tokens(run: RunSession) -> int:
    """The tokens of a trajectory after its prompt."""
    environment = run.resolved.options.get("environment")
    turns = environment.max_turns if isinstance(environment, MultiTurnConfig) else 1
    return turns * run.config.rollout.max_new_tokens + (turns - 1) * ANSWER_TOKENS


def _prompt_tokens(run: RunSession) -> int:
    """The longest prompt among some tasks, from its characters; that of the tools alone if the data cannot be read."""
    try:
        tasks = list(islice(run.dataset.tasks("train") or run.dataset.tasks("evaluation"), 64))
    except UserError:
        tasks = []
    characters = [sum(len(message.text) for message in task.messages) for task in tasks]
    return TOOL_TOKENS + max(characters, default=0) // CHARACTERS_PER_TOKEN


__all__ = ["torch_memory", "vllm_memory"]
