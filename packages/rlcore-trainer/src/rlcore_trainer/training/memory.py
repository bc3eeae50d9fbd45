"""The memory that a trainer needs for weights, optimiser and activations. Does not import torch.

All sizes are in bytes. A stored activation is counted per token and layer of a decoder: eight of the width of the model
(inputs of norms and projections, residual sums), four of the feed-forward width, and keys and values. In a
vision-language model, half of the tokens of a micro-batch are assumed to be visual, and their patches are counted alike
for the vision tower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcore.models.shape import OF_TOWER
from rlcore.specs import MemoryNeeds, ModelOnDevice

from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.optim.critic_config import CriticConfig
from rlcore_trainer.policy.lora_config import ALL, LoraTable, lora_table

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

MOMENTS = 8
"""Bytes of AdamW's two moments of one weight."""
MASTER = 4
"""Bytes of the float32 copy of a trained weight in reduced precision, and again of its gradient during a step."""
NF4 = 0.57
"""Bytes of a weight in 4 bits with its scales."""
CPU_LOGITS, GPU_LOGITS = 3 * 2**26, 3 * 2**29
"""At most this much for logits and their gradients; see `rlcore_trainer.policy.logprobs`."""
VISUAL = 0.5
"""Assumed share of visual tokens in a micro-batch of a vision-language model."""
SMALL = 130
"""Further elements per token and layer, such as statistics of norms and attention."""


def memory(run: RunSession, model: ModelOnDevice) -> MemoryNeeds:
    """Return what training needs at its peak, by purpose."""
    shape, size, trainer = model.shape, model.element_bytes, run.options("trainer")
    lora = lora_table(run)
    frozen = lora.wanted or run.config.model.vision_tower == "frozen"
    still = shape.tower.parameters if shape.tower is not None and frozen else 0
    trained = _adapter_parameters(lora, model) if lora.wanted else shape.parameters - still
    reduced = size < MASTER
    weights = shape.parameters * (NF4 if run.config.model.quantization == "nf4" else size)
    parts = {
        "weights": int(weights) + (trained * size if lora.wanted else 0),
        "gradients": trained * (size + (MASTER if reduced else 0)),
        "optimiser": trained * (MOMENTS + (MASTER if reduced else 0)),
        "activations": _activations(model, trainer.max_tokens_per_batch, checkpointed=trainer.gradient_checkpointing),
    }
    if tower := _tower_activations(model, trainer.max_tokens_per_batch, frozen, trainer.gradient_checkpointing):
        parts["vision tower"] = tower
    algorithm, critic = run.resolved.options.get("algorithm"), run.resolved.options.get("critic")
    if isinstance(algorithm, AlgorithmConfig) and algorithm.kl.coefficient and not lora.wanted:
        parts["reference"] = shape.parameters * size
    if isinstance(critic, CriticConfig) and critic.model not in (None, "head"):
        parts["critic"] = shape.parameters * (size + MOMENTS + size + (2 * MASTER if reduced else 0))
    stored = still * size * (not lora.wanted) + trained * (size + MOMENTS + (MASTER if reduced else 0))
    return MemoryNeeds(parts=parts, checkpoint=stored)


def _activations(model: ModelOnDevice, tokens: int, *, checkpointed: bool) -> int:
    """Return the activations of a micro-batch of ``tokens``, with the logits that are computed at a time."""
    shape, size = model.shape, model.element_bytes
    layer = 8 * shape.width + 4 * shape.feed_forward + 2 * shape.key_width + SMALL
    if size < MASTER:
        layer += 2 * shape.width  # norms are computed in float32
    if not shape.layers:
        return 0
    stored = shape.layers * shape.width + layer if checkpointed else (shape.layers + 1) * layer
    logits = min(3 * 4 * tokens * shape.vocabulary, CPU_LOGITS if model.gpu_bytes is None else GPU_LOGITS)
    return tokens * stored * size + logits


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
