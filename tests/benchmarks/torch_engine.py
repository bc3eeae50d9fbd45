"""The torch engine against transformers' generate: a full batch, groups of uneven length, three turns.

The model is a random Qwen2 of 3.7 million parameters (width 256, 4 layers, 8 heads of which 4 for keys, vocabulary
2048). Both sides sample at temperature 1 and keep each token's log-probability; neither ever stops early: lengths are
set, by ``max_new_tokens`` per sequence with us, by the longest of its batch of 64 with transformers.

``three-turns`` compares with transformers' generate, which computes the whole conversation again in each turn and lets
a batch of 64 wait for its longest. ``three-turns-own`` is not a floor: our engine with its sessions against our engine
that gets every turn as a new conversation.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from comparison import Comparison
from rlcore.types import Sampling
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from transformers import Qwen2Config, Qwen2ForCausalLM

VERSIONS = ("rlcore-rollout", "torch", "transformers")
SLOTS = 64
VOCABULARY = 2048


@dataclass(frozen=True, kw_only=True)
class Source:
    """A live module as a weight source."""

    module: torch.nn.Module
    version: int = 0
    folder: Path | None = None


def build() -> Qwen2ForCausalLM:
    """The model, from a fixed seed."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Qwen2ForCausalLM(config).eval()


def ids(generator: random.Random, count: int) -> list[int]:
    """Random tokens."""
    return [generator.randrange(1, VOCABULARY) for _ in range(count)]


def generate(model: Any, prompts: list[list[int]], count: int) -> list[list[int]]:
    """``count`` new tokens of every prompt by transformers, in batches of 64 padded on the left."""
    made: list[list[int]] = []
    for first in range(0, len(prompts), SLOTS):
        batch = prompts[first : first + SLOTS]
        width = max(map(len, batch))
        tokens = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in batch])
        output = model.generate(
            tokens,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=count,
            min_new_tokens=count,
            return_dict_in_generate=True,
            output_logits=True,
        )
        new = output.sequences[:, width:]
        for index, logits in enumerate(output.logits):
            torch.log_softmax(logits.float(), -1).gather(1, new[:, index : index + 1])
        made += new.tolist()
    return made


def timed(work: Callable[[], int], expected: int) -> Callable[[], float]:
    """A measured call, which must have sampled the expected number of tokens."""

    def run() -> float:
        start = time.perf_counter()
        made = work()
        elapsed = time.perf_counter() - start
        assert made == expected, f"{made} tokens instead of {expected}"
        return elapsed

    return run


class Ours:
    """Work for a fresh engine."""

    def __init__(self, model: torch.nn.Module):
        self._model = model

    def __call__(self, conversations: list[tuple[list[int], list[int], list[list[int]]]], *, keep: bool = True) -> int:
        """Prompt, length of each turn and observations between; the number of sampled tokens."""

        async def main() -> int:
            engine = TorchEngine(TorchEngineConfig(slots=SLOTS), Source(module=self._model), EngineContext())

            async def converse(index: int) -> int:
                prompt, lengths, observations = conversations[index]
                tokens, made = list(prompt), 0
                for turn, length in enumerate(lengths):
                    session = f"{index}" if keep else f"{index}-{turn}"
                    sampling = Sampling(max_new_tokens=length, seed=1000 * index + turn)
                    completion = await engine.generate(tokens, sampling, session=session)
                    made += len(completion.logprobs)
                    tokens += completion.token_ids
                    tokens += observations[turn] if turn < len(observations) else []
                    if not keep:
                        await engine.release(session)
                await engine.release(f"{index}")
                return made

            made = sum(await asyncio.gather(*map(converse, range(len(conversations)))))
            await engine.close()
            return made

        return asyncio.run(main())


def comparisons() -> list[Comparison]:
    """The three floors of the torch engine, and what its sessions alone are worth."""
    model = build()
    ours = Ours(model)
    generator = random.Random(0)

    same = [ids(generator, generator.randint(16, 64)) for _ in range(64)]

    prompts = [prompt for prompt in (ids(generator, 512) for _ in range(32)) for _ in range(8)]
    lengths = [8 + (248 * index) // 255 for index in range(256)]
    generator.shuffle(lengths)

    def uneven() -> int:
        made = 0
        for first in range(0, 256, SLOTS):
            batch = lengths[first : first + SLOTS]
            rows = generate(model, prompts[first : first + SLOTS], max(batch))
            made += sum(len(row[:length]) for row, length in zip(rows, batch, strict=True))
        return made

    turns = [[generator.randint(16, 64) for _ in range(3)] for _ in range(64)]
    seen = [[ids(generator, 16) for _ in range(2)] for _ in range(64)]
    starts = [prompt for prompt in (ids(generator, 512) for _ in range(8)) for _ in range(8)]

    def again() -> int:
        tokens, made = [list(start) for start in starts], 0
        for turn in range(3):
            rows = generate(model, tokens, max(length[turn] for length in turns))
            for index, row in enumerate(rows):
                own = row[: turns[index][turn]]
                made += len(own)
                tokens[index] += own + (seen[index][turn] if turn < 2 else [])
        return made

    conversations = list(zip(starts, turns, seen, strict=True))
    sampled = sum(map(sum, turns))
    return [
        Comparison(
            name="full-batch",
            ours=timed(lambda: ours([(prompt, [128], []) for prompt in same]), 64 * 128),
            peer=timed(lambda: sum(map(len, generate(model, same, 128))), 64 * 128),
            floor=1.2,
        ),
        Comparison(
            name="groups-of-8",
            ours=timed(lambda: ours([(p, [n], []) for p, n in zip(prompts, lengths, strict=True)]), sum(lengths)),
            peer=timed(uneven, sum(lengths)),
            floor=2.5,
        ),
        Comparison(
            name="three-turns",
            ours=timed(lambda: ours(conversations), sampled),
            peer=timed(again, sampled),
            floor=3.0,
        ),
        Comparison(
            name="three-turns-own",
            ours=timed(lambda: ours(conversations), sampled),
            peer=timed(lambda: ours(conversations, keep=False), sampled),
            floor=1.0,
        ),
    ]
