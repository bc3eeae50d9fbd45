"""A GRPO update on 8 responses to a picture of 1,000 visual tokens, which is encoded and prefilled once or 8 times.

The model is a random Qwen2.5-VL: a text model of width 256 with 4 layers, a vision tower of width 96 with 3 blocks,
one of which attends to the whole picture, patches of 14 pixels. The peer computes the same update with a micro-batch
for each response, so each has the picture and the prompt of its own. Losses and gradients of both sides are compared
before the measurement.
"""

from __future__ import annotations

import io
import random
import time
from typing import Any

import torch
from comparison import Comparison
from PIL import Image
from rlcore.images import ImageProcessor
from rlcore.types import LossMask, MediaSpan, TokenIds, media_hash
from rlcore_trainer.batching.packing import TrainingSequence, pack
from rlcore_trainer.policy.forward import PackedForward
from shared_prompt import RESPONSE, SIBLINGS, VOCABULARY, of_tokens
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

VERSIONS = ("rlcore-trainer", "torch", "transformers")
PLACEHOLDER = VOCABULARY - 1
PROCESSOR = ImageProcessor()
TEXT = 24
"""Tokens of the question."""


def build() -> Qwen2_5_VLForConditionalGeneration:
    """The model with a fixed seed."""
    torch.manual_seed(0)
    text: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]},
    }
    vision = {
        "depth": 3,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_heads": 3,
        "out_hidden_size": 256,
        "fullatt_block_indexes": [2],
    }
    names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    tokens: dict[str, Any] = {name: PLACEHOLDER - i for i, name in enumerate(names)}
    text |= {"bos_token_id": None, "eos_token_id": None}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **tokens)).eval()


def picture(columns: int, rows: int, seed: int = 0) -> bytes:
    """Random colours with this many visual tokens."""
    width, height = columns * PROCESSOR.token_side, rows * PROCESSOR.token_side
    written = io.BytesIO()
    pixels = random.Random(seed).randbytes(3 * width * height)
    Image.frombytes("RGB", (width, height), pixels).save(written, format="PNG", compress_level=1)
    return written.getvalue()


def rollouts(columns: int, rows: int, response: int) -> list[TrainingSequence]:
    """Random responses to a question about a picture, with random advantages."""
    rng, data = random.Random(0), picture(columns, rows)
    name, length = media_hash(data), rows * columns
    span = MediaSpan(sha256=name, offset=2, length=length, rows=rows, columns=columns)
    start = [*rng.choices(range(500), k=2), *[PLACEHOLDER] * length, *rng.choices(range(500), k=TEXT)]
    return [
        TrainingSequence(
            token_ids=TokenIds([*start, *rng.choices(range(500), k=response)]),
            loss_mask=LossMask([False] * len(start) + [True] * response),
            prompt_length=len(start),
            media=(span,),
            images={name: data},
            advantage=rng.gauss(0, 1),
            weight=1 / (SIBLINGS * response),
        )
        for _ in range(SIBLINGS)
    ]


def update(model: Any, batches: list[list[TrainingSequence]]) -> float:
    """Accumulate the gradient of a policy-gradient loss over micro-batches and return the loss."""
    model.zero_grad()
    total, forward = 0.0, PackedForward(PROCESSOR)
    with forward.computing(model):
        for sequences in batches:
            for batch in pack(sequences, 4096, torch.device("cpu")):
                loss = forward.loss(model, batch, of_tokens(batch), temperature=1.0, entropy=False, token_wise=True)[0]
                torch.autograd.backward(loss)
                total += float(loss.detach())
    return total


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """One comparison."""
    model = build()
    sequences = rollouts(3, 2, 4) if smoke else rollouts(40, 25, RESPONSE)
    sides = [[sequences], [[one] for one in sequences]]
    results = []
    for side in sides:
        loss = update(model, side)
        results.append((loss, {name: each.grad for name, each in model.named_parameters() if each.grad is not None}))
    (ours, gradients), (theirs, expected) = results
    assert abs(ours - theirs) < 1e-5, f"losses {ours} and {theirs}"
    assert any("visual" in name for name in gradients)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-5)

    def seconds(side: list[list[TrainingSequence]]) -> float:
        start = time.perf_counter()
        update(model, side)
        return time.perf_counter() - start

    return [
        Comparison(name="eight-siblings", ours=lambda: seconds(sides[0]), peer=lambda: seconds(sides[1]), floor=5.0)
    ]
