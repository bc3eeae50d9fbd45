"""The torch engine against ``generate`` of transformers: a full batch, groups of uneven length, three turns.

The model is a random Qwen2 with 3.7 million parameters (width 256, 4 layers, 8 heads with 4 for keys, vocabulary 2048).
Both sides sample at temperature 1 and keep the log-probability of each token. Lengths are fixed: by ``max_new_tokens``
per sequence in our engine, and by the longest sequence of each batch of 64 in transformers.

``three-turns`` compares with ``generate``, which computes the full conversation again in each turn and waits for the
longest sequence of a batch. ``three-turns-own`` compares our engine with sessions and our engine without them.

``images`` is groups of 8 with one picture of 112 x 112 pixels for each group, and a random Qwen2.5-VL with the same
text model. transformers gets the pixels, which our engine decodes.
"""

from __future__ import annotations

import asyncio
import io
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from comparison import Comparison
from PIL import Image
from rlcore.images import ImageProcessor
from rlcore.types import MediaSpan, Prompt, Sampling, TokenIds, media_hash
from rlcore_models.pixels import patches
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
from live_weights import LiveWeights

VERSIONS = ("rlcore-rollout", "torch", "transformers")
SLOTS = 64
VOCABULARY = 2048
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
PLACEHOLDER, SIDE = VOCABULARY - 1, 4
"""The token of a picture, and the rows and columns of visual tokens in one of 112 x 112 pixels."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """The amount of work."""

    batch: int
    """Sequences of the full batch, and number of conversations."""
    new: int
    groups: int
    """Groups of 8 sequences."""
    prompt: int
    longest: int
    """New tokens of the longest sequence in the groups. The shortest has 8."""
    turn: tuple[int, int]
    """Minimum and maximum length of a turn."""


FULL = Size(batch=64, new=128, groups=32, prompt=512, longest=256, turn=(16, 64))
SMOKE = Size(batch=8, new=8, groups=2, prompt=32, longest=16, turn=(4, 8))


def build() -> Qwen2ForCausalLM:
    """The model with a fixed seed."""
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**TEXT)).eval()


def build_vision() -> Any:
    """The vision-language model with a fixed seed."""
    torch.manual_seed(0)
    rotary = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    vision = {"depth": 4, "hidden_size": 128, "intermediate_size": 256, "num_heads": 4, "out_hidden_size": 256}
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": rotary},
        vision_config={**vision, "window_size": 56, "fullatt_block_indexes": [1, 3]},
        tie_word_embeddings=True,
        image_token_id=PLACEHOLDER,
        video_token_id=PLACEHOLDER - 1,
        vision_start_token_id=PLACEHOLDER - 2,
        vision_end_token_id=PLACEHOLDER - 3,
    )
    return Qwen2_5_VLForConditionalGeneration(config).eval()


def ids(generator: random.Random, count: int) -> list[int]:
    """Random tokens."""
    return [generator.randrange(1, VOCABULARY) for _ in range(count)]


def generate(model: Any, prompts: list[list[int]], count: int, **inputs: Any) -> list[list[int]]:
    """Generate ``count`` tokens for every prompt with transformers, in batches of 64 with left padding.

    ``inputs`` are further inputs of the model, for at most one batch.
    """
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
            **inputs,
        )
        new = output.sequences[:, width:]
        for index, logits in enumerate(output.logits):
            torch.log_softmax(logits.float(), -1).gather(1, new[:, index : index + 1])
        made += new.tolist()
    return made


def timed(work: Callable[[], int], expected: int) -> Callable[[], float]:
    """A timed call with a check of the number of sampled tokens."""

    def run() -> float:
        start = time.perf_counter()
        made = work()
        elapsed = time.perf_counter() - start
        assert made == expected, f"{made} tokens instead of {expected}"
        return elapsed

    return run


class Ours:
    """Run conversations on a new engine."""

    def __init__(self, model: torch.nn.Module):
        self._model = model

    def __call__(self, conversations: list[tuple[list[int], list[int], list[list[int]]]], *, keep: bool = True) -> int:
        """Takes prompt, turn lengths and observations of each conversation. Returns the number of sampled tokens."""

        async def main() -> int:
            engine = TorchEngine(TorchEngineConfig(slots=SLOTS), LiveWeights(self._model), EngineContext())

            async def converse(index: int) -> int:
                prompt, lengths, observations = conversations[index]
                tokens, made = list(prompt), 0
                for turn, length in enumerate(lengths):
                    session = f"{index}" if keep else f"{index}-{turn}"
                    sampling = Sampling(max_new_tokens=length, seed=1000 * index + turn)
                    completion = await engine.generate(Prompt(token_ids=TokenIds(tokens)), sampling, session=session)
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


def image_prompts(generator: random.Random, groups: int, text: int) -> list[Prompt]:
    """One prompt for each group: a picture between random tokens."""
    found = []
    for _ in range(groups):
        written = io.BytesIO()
        pixels = generator.randbytes(28 * SIDE * 28 * SIDE * 3)
        Image.frombytes("RGB", (28 * SIDE, 28 * SIDE), pixels).save(written, format="PNG", compress_level=1)
        data, length = written.getvalue(), SIDE * SIDE
        span = MediaSpan(sha256=media_hash(data), offset=8, length=length, rows=SIDE, columns=SIDE)
        tokens = [min(token, PLACEHOLDER - 4) for token in ids(generator, 8 + text)]
        tokens[8:8] = [PLACEHOLDER] * length
        found.append(Prompt(token_ids=TokenIds(tokens), media=(span,), images={span.sha256: data}))
    return found


def images(generator: random.Random, size: Size) -> Comparison:
    """The comparison with pictures. All sequences of a batch have the same length."""
    model, processor = build_vision(), ImageProcessor()
    prompts = [prompt for prompt in image_prompts(generator, size.batch // 8, size.turn[1]) for _ in range(8)]
    expected = len(prompts) * size.new
    pixels = torch.cat([patches(data, processor) for prompt in prompts for data in prompt.images.values()])
    kinds = torch.tensor([[int(token == PLACEHOLDER) for token in prompt.token_ids] for prompt in prompts])
    inputs = {
        "pixel_values": pixels,
        "image_grid_thw": torch.tensor([[1, 2 * SIDE, 2 * SIDE]] * len(prompts)),
        "mm_token_type_ids": kinds,
        "suppress_tokens": [PLACEHOLDER, PLACEHOLDER - 1],
    }

    def ours() -> int:
        async def main() -> int:
            context = EngineContext(images=processor)
            engine = TorchEngine(TorchEngineConfig(slots=SLOTS), LiveWeights(model), context)
            suppressed = (PLACEHOLDER, PLACEHOLDER - 1)
            calls = [
                engine.generate(
                    prompt,
                    Sampling(max_new_tokens=size.new, seed=index, suppressed_token_ids=suppressed),
                    session=str(index),
                )
                for index, prompt in enumerate(prompts)
            ]
            made = sum(len(completion.token_ids) for completion in await asyncio.gather(*calls))
            await engine.close()
            return made

        return asyncio.run(main())

    def peer() -> int:
        return sum(map(len, generate(model, [list(prompt.token_ids) for prompt in prompts], size.new, **inputs)))

    return Comparison(name="images", ours=timed(ours, expected), peer=timed(peer, expected), floor=1.2)


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """Three comparisons with transformers, and the gain from sessions."""
    model = build()
    ours = Ours(model)
    generator = random.Random(0)
    size = SMOKE if smoke else FULL

    same = [ids(generator, generator.randint(*size.turn)) for _ in range(size.batch)]

    prompts = [prompt for prompt in (ids(generator, size.prompt) for _ in range(size.groups)) for _ in range(8)]
    last = len(prompts) - 1
    lengths = [8 + ((size.longest - 8) * index) // last for index in range(len(prompts))]
    generator.shuffle(lengths)

    def uneven() -> int:
        made = 0
        for first in range(0, len(prompts), SLOTS):
            batch = lengths[first : first + SLOTS]
            rows = generate(model, prompts[first : first + SLOTS], max(batch))
            made += sum(len(row[:length]) for row, length in zip(rows, batch, strict=True))
        return made

    turns = [[generator.randint(*size.turn) for _ in range(3)] for _ in range(size.batch)]
    seen = [[ids(generator, 16) for _ in range(2)] for _ in range(size.batch)]
    starts = [prompt for prompt in (ids(generator, size.prompt) for _ in range(size.batch // 8)) for _ in range(8)]

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
            ours=timed(lambda: ours([(prompt, [size.new], []) for prompt in same]), size.batch * size.new),
            peer=timed(lambda: sum(map(len, generate(model, same, size.new))), size.batch * size.new),
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
        images(generator, size),
    ]
