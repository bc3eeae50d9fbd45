"""The memory of the engines, in bytes: their caches of keys and values. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from rlcore.abilities import MultiTurnConfig, TasksConfig
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor, image_size
from rlcore.models.config_file import read_config
from rlcore.specs import MemoryNeeds, ModelOnDevice

from rlcore_rollout.engines.torch.config import CALL_TOKENS, TorchEngineConfig
from rlcore_rollout.engines.vllm.config import VllmEngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlcore.session.session import RunSession
    from rlcore.types import Task

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
HIDDEN, FEED_FORWARD = 8, 3
"""Values of a patch in a layer of the vision tower, in widths: of hidden states, projections and the gated MLP."""


@dataclass(frozen=True, slots=True)
class _Prompts:
    """The longest prompt among some tasks, in tokens."""

    text: int
    visual: int


def torch_memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return the cache of the sequences that are sampled together, and of their prompts."""
    options, rollout = run.options("engine"), run.config.rollout
    assert isinstance(options, TorchEngineConfig)
    token = _token_bytes(model)
    tasks = _tasks(run)
    trajectories = tasks * rollout.group_size
    rows = min(options.slots, rollout.concurrency, trajectories)
    own = -(-_own_tokens(run) // POSITIONS) * POSITIONS
    prompts = _prompts(run)
    cache = ROOM * rows * own + tasks * (prompts.text + prompts.visual)
    if model.gpu_bytes is None:  # the deterministic mode keeps the cache of every unfinished trajectory
        cache += max(0, trajectories - rows) * own / 2
    parts = {"KV cache": int(cache * token)}
    if prompts.visual:
        parts["image features"] = _feature_bytes(run, model, min(tasks, options.slots), prompts.visual)
    return MemoryNeeds(parts=parts)


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


def _prompts(run: RunSession) -> _Prompts:
    """The longest prompt among some tasks, from its characters and images; the tools alone without data."""
    try:
        tasks = list(islice(run.dataset.tasks("train") or run.dataset.tasks("evaluation"), 64))
    except UserError:
        tasks = []
    characters = [sum(len(message.text) for message in task.messages) for task in tasks]
    text = TOOL_TOKENS + max(characters, default=0) // CHARACTERS_PER_TOKEN
    return _Prompts(text, _visual_tokens(run, tasks))


def _visual_tokens(run: RunSession, tasks: Sequence[Task]) -> int:
    """The most visual tokens of one task. Images that cannot be read are reported where they are used."""
    if not any(task.images for task in tasks):
        return 0
    folder = run.model_here()
    processor = (None if folder is None else run.image_processor(folder)) or ImageProcessor()
    most = 0
    for task in tasks:
        tokens = 0
        for data in task.images:
            try:
                rows, columns = processor.tokens(*image_size(data))
                tokens += rows * columns
            except DataError:
                continue
        most = max(most, tokens)
    return most


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
