"""Forward and backward pass of 8 responses of 64 tokens to a prompt of 1,024 tokens, with and without sharing.

The model is a random Qwen2 with 3.4 million parameters (width 256, 4 layers, 8 heads with 4 for keys, vocabulary 512).
The peer is the same code with ``prompt_length=0``, which computes the prompt for every response. Loss and gradient of
both sides are compared before the measurement.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from comparison import Comparison
from rlcore_trainer.batching.packing import MicroBatch, TrainingSequence, pack
from rlcore_trainer.policy.forward import PackedForward
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

VERSIONS = ("rlcore-trainer", "torch", "transformers")
VOCABULARY, PROMPT, RESPONSE, SIBLINGS = 512, 1024, 64, 8
BUDGET = 4096


def build() -> Qwen2ForCausalLM:
    """The model with a fixed seed."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def rollouts(
    groups: int, siblings: int, prompt: int, response: int, *, shared: bool = True, seed: int = 0
) -> list[TrainingSequence]:
    """Random tokens, with a random advantage for each response."""
    rng = random.Random(seed)
    made = []
    for _ in range(groups):
        start = rng.choices(range(VOCABULARY), k=prompt)
        for _ in range(siblings):
            made.append(
                TrainingSequence(
                    token_ids=[*start, *rng.choices(range(VOCABULARY), k=response)],
                    loss_mask=[False] * prompt + [True] * response,
                    prompt_length=prompt if shared else 0,
                    advantage=rng.gauss(0, 1),
                    weight=1 / (groups * siblings * response),
                )
            )
    return made


def update(model: Any, sequences: Sequence[TrainingSequence], budget: int = BUDGET) -> float:
    """Accumulate the gradient of a plain policy-gradient loss over micro-batches and return the loss."""
    model.zero_grad()
    total, forward = 0.0, PackedForward()
    with forward.computing(model):
        for batch in pack(sequences, budget, torch.device("cpu")):
            loss = forward.loss(model, batch, of_tokens(batch), temperature=1.0, entropy=True, token_wise=True)[0]
            torch.autograd.backward(loss)
            total += float(loss.detach())
    return total


def of_tokens(batch: MicroBatch) -> Callable[[slice, Tensor, Tensor | None], tuple[Tensor, dict[str, Tensor]]]:
    """The negative product of weight, advantage and log-probability."""

    def of_chunk(chunk: slice, logprobs_C: Tensor, entropy_C: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        scale_C = (batch.weights_M * batch.advantages_M)[chunk].to(logprobs_C)
        return -(scale_C * logprobs_C).sum(), {}

    return of_chunk


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """One comparison."""
    model = build()
    prompt, response = (32, 4) if smoke else (PROMPT, RESPONSE)
    sides = [rollouts(1, SIBLINGS, prompt, response, shared=shared) for shared in (True, False)]
    results = []
    for side in sides:
        loss = update(model, side)
        results.append(
            (loss, [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        )
    (ours, gradients), (theirs, expected) = results
    assert abs(ours - theirs) < 1e-5, f"losses {ours} and {theirs}"
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)

    def seconds(side: list[TrainingSequence]) -> float:
        start = time.perf_counter()
        update(model, side)
        return time.perf_counter() - start

    return [
        Comparison(name="eight-siblings", ours=lambda: seconds(sides[0]), peer=lambda: seconds(sides[1]), floor=4.0)
    ]
