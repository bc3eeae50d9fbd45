"""The page about which strategy fits which model on which cards, computed by the estimate of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from rlcore.models.shape import ModelShape, shape_of_config
from rlcore.session.memory import CUDA_BYTES
from rlcore.specs import GAPS, ModelOnDevice
from rlcore_models.lora_config import LoraTable
from rlcore_trainer.algorithms.config import AlgorithmConfig
from rlcore_trainer.checks.expected_tokens import ExpectedTokens
from rlcore_trainer.checks.memory import memory_of
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.distributed.config import FullyShardedConfig, SingleProcessConfig
from transformers import AutoModelForCausalLM, Qwen2Config

MODELS = {
    "0.5B": (896, 24, 14, 2, 4864),
    "1.5B": (1536, 28, 12, 2, 8960),
    "3B": (2048, 36, 16, 2, 11008),
    "7B": (3584, 28, 28, 4, 18944),
    "14B": (5120, 48, 40, 8, 13824),
    "32B": (5120, 64, 40, 8, 27648),
}
"""Width, layers, heads, heads of keys, and feed-forward width of Qwen2.5."""
CARDS = (24, 48, 80)
"""Gigabytes of a card."""
ROOM = 0.9
"""Share of a card that is used: estimates differ from the peak by up to 10 %."""
WAYS = {
    "one card": (1, 0),
    "`fsdp2` × 2": (2, 0),
    "`fsdp2` × 4": (4, 0),
    "`fsdp2` × 8": (8, 0),
    "one card, `lora.rank=32`": (1, 32),
    "`fsdp2` × 8, `lora.rank=32`": (8, 32),
}
"""Number of processes and rank of the adapter."""
TOKENS = PolicyGradientConfig().max_tokens_per_batch
FULL = ExpectedTokens(TOKENS, TOKENS)


def shape_of(name: str) -> ModelShape:
    """The sizes of a model of Qwen2.5."""
    width, layers, heads, key_heads, inner = MODELS[name]
    config = Qwen2Config(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        intermediate_size=inner,
        vocab_size=151936,
        tie_word_embeddings=width < 3000,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    named = [(key, *one.shape) for key, one in model.named_parameters() if one.ndim == 2]
    count = sum(one.numel() for one in model.parameters())
    return shape_of_config(config.to_dict(), parameters=count, matrices=tuple(named))


def gigabytes(shape: ModelShape, card: int, processes: int, rank: int) -> float:
    """The memory of a process on its card."""
    options: dict[str, Any] = {
        "trainer": PolicyGradientConfig(gradient_checkpointing=True),
        "algorithm": AlgorithmConfig(),
        "lora": LoraTable(rank=rank) if rank else LoraTable(),
        "strategy": FullyShardedConfig(processes=processes) if processes > 1 else SingleProcessConfig(),
    }
    run: Any = SimpleNamespace(
        options=lambda table: options[table],
        resolved=SimpleNamespace(options=options),
        config=SimpleNamespace(
            model=SimpleNamespace(vision_tower="frozen", quantization="none", device="cuda"),
            schedule=SimpleNamespace(ahead=0),
        ),
        shares_sampler=True,
    )
    needs = memory_of(run, ModelOnDevice(shape=shape, element_bytes=2, gpu_bytes=card * 10**9), FULL)
    phases = ({name: size for name, size in phase.items() if name != GAPS} for phase in needs.phases.values())
    return (CUDA_BYTES + sum(needs.parts.values()) + max(sum(phase.values()) for phase in phases)) / 1e9


def page() -> str:
    """The page, with the first way that fits for each model and card."""
    lines = [
        "# Which strategy for which model on which cards",
        "",
        "The first way in which a model of the size of Qwen2.5 fits into 90 % of each card: on one card, with `fsdp2`",
        "on 2, 4 or 8 cards, with an adapter on one card, and with an adapter on 8 cards. The trainer is",
        "`policy-gradient` without a KL term, with `model.dtype=bfloat16 trainer.gradient_checkpointing=true` and the",
        "default of `trainer.max_tokens_per_batch`. vLLM has cards of its own, or sleeps during updates. The figures",
        "are those of the estimate that a run prints at its start. They have not been measured on these cards.",
        "",
        "| Model | " + " | ".join(f"cards of {card} GB" for card in CARDS) + " |",
        "|---|" + "---|" * len(CARDS),
    ]
    for name in MODELS:
        shape, cells = shape_of(name), []
        for card in CARDS:
            sizes = ((way, gigabytes(shape, card, *how)) for way, how in WAYS.items())
            fitting = (f"{way}: {size:.0f} GB" for way, size in sizes if size <= ROOM * card)
            cells.append(next(fitting, "more than 8 cards"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
