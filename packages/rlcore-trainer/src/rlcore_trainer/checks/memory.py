"""The memory that a trainer needs for weights, optimiser and activations. Does not import torch.

All sizes are in bytes. A stored activation is counted per token and layer of a decoder: eight of the width of the model
(inputs of norms and projections, residual sums), four of the feed-forward width, and keys and values. With an adapter,
the inputs of frozen layers are not stored. In a vision-language model, half of the tokens of a micro-batch are assumed
to be visual, and their patches are counted alike for the vision tower.

At the end of a forward pass all activations are stored. The gradients of all weights exist only from the second
micro-batch of an update on: in the first, they replace the activations one layer after another. Gradients are summed
in float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcore.models.folder import local_folder
from rlcore.models.shape import OF_TOWER, shape_of_folder
from rlcore.session.memory import DTYPE_BYTES
from rlcore.specs import GAPS, MemoryNeeds, ModelOnDevice
from rlcore_models.lora_config import ALL, LoraTable, lora_table

from rlcore_trainer.algorithms.config import AlgorithmConfig, DistillationConfig
from rlcore_trainer.checks.expected_tokens import ExpectedTokens, expected_tokens
from rlcore_trainer.config import OfflineConfig
from rlcore_trainer.distributed.config import FullyShardedConfig
from rlcore_trainer.distributed.launch import process_count
from rlcore_trainer.learner.critic_config import CriticConfig

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

MOMENTS = 8
"""Bytes of AdamW's two moments of one weight."""
MASTER = 4
"""Bytes of the float32 copy of a trained weight in reduced precision, and of its gradient."""
NF4 = 0.57
"""Bytes of a weight in 4 bits with its scales."""
CPU_LOGITS, GPU_LOGITS = 2**26 + 2**23, 3 * 2**29
"""At most this much for logits and their gradients; see `rlcore_trainer.policy.logprobs`."""
VISUAL = 0.5
"""Assumed share of visual tokens in a micro-batch of a vision-language model."""
FIRST_GAPS, GROWTH_STEPS, LAST_GAPS, ADAPTER_GAPS = 0.25, 30, 1.25, 1.2
"""Gaps in the heap as a share of the activations: in the first step, from this number of steps on, and with an adapter.
See `rlcore.models.freed_memory`."""
SMALL = 130
"""Further elements per token and layer, such as statistics of norms and attention."""


def memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return what training needs at its peak, by purpose."""
    return memory_of(run, model, expected_tokens(run))


def memory_of(run: RunSession, model: ModelOnDevice, tokens: ExpectedTokens) -> MemoryNeeds:
    """Return what training needs at its peak with micro-batches of these sizes, by purpose."""
    shape, size, trainer = model.shape, model.element_bytes, run.options("trainer")
    lora = lora_table(run)
    frozen = lora.wanted or run.config.model.vision_tower == "frozen"
    still = shape.tower.parameters if shape.tower is not None and frozen else 0
    trained = _adapter_parameters(lora, model) if lora.wanted else shape.parameters - still
    master = MASTER if size < MASTER else 0
    stored_bytes = NF4 if run.config.model.quantization == "nf4" else size
    weights = shape.parameters * stored_bytes
    strategy = run.options("strategy")
    sharded = isinstance(strategy, FullyShardedConfig)
    count = strategy.shard_size or process_count(run) if sharded else 1
    parts = {
        "weights": (int(weights) + (trained * size if lora.wanted else 0)) // count,
        "optimiser": trained * (MOMENTS + master) // count,
    }
    if count > 1:
        parts["gathered weights"] = _gathered(model, stored_bytes, gradient=0 if lora.wanted else MASTER)
        parts["gathered weights"] += 0 if strategy.reshard_after_forward else int(weights)
    copied = count > 1 or run.config.schedule.ahead > 0
    if copied and (not isinstance(trainer, OfflineConfig) or trainer.tries_tasks) and not run.shares_sampler:
        parts["weights of the engine"] = int(weights)

    steps = trainer.steps if isinstance(trainer.steps, int) else GROWTH_STEPS
    growth = min(1.0, steps / GROWTH_STEPS)
    algorithm, critic = run.resolved.options.get("algorithm"), run.resolved.options.get("critic")
    gaps = ADAPTER_GAPS if lora.wanted else FIRST_GAPS + (LAST_GAPS - FIRST_GAPS) * growth

    def computed(count: int) -> dict[str, int]:
        activations = _activations(model, count, lora, checkpointed=trainer.gradient_checkpointing)
        found = {
            "activations": activations,
            GAPS: int(activations * gaps),
            "logits": _logits(model, count, trained=not lora.wanted),
            "vision tower": _tower_activations(model, count, frozen, trainer.gradient_checkpointing),
        }
        return {name: size for name, size in found.items() if size}

    phases = {
        "first micro-batch": computed(tokens.first),
        "further micro-batches": {"gradients": trained * max(MASTER, size) // count, **computed(tokens.further)},
    }
    if isinstance(algorithm, AlgorithmConfig) and algorithm.kl.coefficient and not lora.wanted:
        parts["reference"] = shape.parameters * size // count
    if isinstance(algorithm, AlgorithmConfig) and (teacher := _teacher_bytes(algorithm.distillation, size)):
        parts["teacher"] = teacher // count
    if isinstance(critic, CriticConfig) and critic.model not in (None, "head"):
        parts["critic"] = shape.parameters * (size + MOMENTS + master) // count
        summed = shape.parameters * max(MASTER, size) // count
        phases["update of the critic"] = {"gradients": summed, **computed(tokens.further)}
    if count > 1 and model.gpu_bytes is not None:  # the card first holds the whole model, which it then divides
        phases["loading"] = {"weights while loading": max(0, int(weights) - sum(parts.values()))}
    stored = still * size * (not lora.wanted) + trained * (size + MOMENTS + master)
    return MemoryNeeds(parts=parts, phases=phases, checkpoint=stored)


def _teacher_bytes(distillation: DistillationConfig, element_bytes: int) -> int:
    """Return the size of the teacher's weights; 0 without one, or if it has to be downloaded."""
    folder = local_folder(distillation.teacher) if distillation.teacher is not None else None
    if folder is None:
        return 0
    size = DTYPE_BYTES[distillation.dtype] if distillation.dtype is not None else element_bytes
    return shape_of_folder(folder).parameters * size


def _gathered(model: ModelOnDevice, stored_bytes: float, gradient: int) -> int:
    """Return what a process gathers of divided weights: those outside of the layers, and two layers with a gradient."""
    shape = model.shape
    inside = sum(inputs * outputs for name, outputs, inputs in shape.matrices if ".layers." in name)
    outside = (shape.parameters - inside) * (model.element_bytes + gradient)
    return outside + int(inside / max(1, shape.layers) * (2 * stored_bytes + gradient))


def _activations(model: ModelOnDevice, tokens: int, lora: LoraTable, *, checkpointed: bool) -> int:
    """Return the activations of a micro-batch of ``tokens``, with those of the layer that is computed."""
    shape, size = model.shape, model.element_bytes
    if not shape.layers:
        return 0
    layer = _layer(model, lora)
    stored = shape.layers * shape.width + layer if checkpointed else (shape.layers + 1) * layer
    return tokens * stored * size


def _layer(model: ModelOnDevice, lora: LoraTable) -> int:
    """Return the stored elements per token of a layer."""
    width, inner = model.shape.width, model.shape.feed_forward
    wide = 2 * width if model.element_bytes < MASTER else 0  # norms are computed in float32
    elements = 8 * width + 4 * inner + 2 * model.shape.key_width + SMALL + wide
    if not lora.wanted:
        return elements
    # A norm stores no product for the gradient of its weight, and a frozen layer without an adapter not its input.
    elements -= 2 * width
    inputs = {("q_proj", "k_proj", "v_proj"): width, ("gate_proj", "up_proj"): width, ("down_proj",): inner}
    for names, count in inputs.items():
        adapted = sum(_is_target(f".{name}.weight", lora.targets) for name in names)
        if not adapted:
            elements -= count
        elif lora.dropout:
            elements += adapted * count
    return elements


def _logits(model: ModelOnDevice, tokens: int, *, trained: bool) -> int:
    """Return the logits that are computed at a time, and the gradients by the output layer and its inputs."""
    shape = model.shape
    logits = min(3 * 4 * tokens * shape.vocabulary, CPU_LOGITS if model.gpu_bytes is None else GPU_LOGITS)
    copies = MASTER + (model.element_bytes if model.element_bytes < MASTER else 0)
    return logits + copies * shape.width * (tokens + shape.vocabulary * trained)


def _tower_activations(model: ModelOnDevice, tokens: int, frozen: bool, checkpointed: bool) -> int:
    """Return the activations of the images of a micro-batch; those of one layer if the tower is not trained."""
    tower = model.shape.tower
    if tower is None:
        return 0
    layer = 10 * tower.width + 4 * tower.feed_forward + SMALL
    stored = layer if frozen else tower.layers * tower.width + layer if checkpointed else (tower.layers + 1) * layer
    return int(VISUAL * tokens) * tower.patches * stored * model.element_bytes


def _adapter_parameters(table: LoraTable, model: ModelOnDevice) -> int:
    """Return the number of weights of an adapter; those of an adapter to continue from are counted with rank 16."""
    targets = [sizes for name, *sizes in model.shape.matrices if _is_target(name, table.targets)]
    return (table.rank or 16) * sum(map(sum, targets))


def _is_target(name: str, targets: Any) -> bool:
    layer = name.removesuffix(".weight").rpartition(".")[2]
    if OF_TOWER in f".{name}":
        return False
    if targets == ALL or isinstance(targets, str):
        return name.endswith("proj.weight")
    return layer in targets


__all__ = ["memory"]
