"""An update's forward and backward pass of 8 responses of 64 tokens to one prompt of 1,024, shared and not.

A random Qwen2 of 3.4 million parameters (width 256, 4 layers, 8 heads of which 4 for keys, vocabulary 512). The other
side is the same code with ``prompt_length=0``, which feeds the prompt with every response; loss and gradient of both
are compared before anything is measured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from comparison import Comparison
from rlcore_trainer.attention import packed_attention_of
from rlcore_trainer.model import batch_loss
from rlcore_trainer.packing import MicroBatch, pack
from rlcore_trainer.packing import Sequence as Trained
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

VERSIONS = ("rlcore-trainer", "torch", "transformers")
VOCABULARY, PROMPT, RESPONSE, SIBLINGS = 512, 1024, 64, 8
BUDGET = 4096


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
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).eval()


def rollouts(
    groups: int, siblings: int, prompt: int, response: int, *, shared: bool = True, seed: int = 0
) -> list[Trained]:
    """Random tokens, each response trained with an advantage of its own."""
    rng = random.Random(seed)
    made = []
    for _ in range(groups):
        start = rng.choices(range(VOCABULARY), k=prompt)
        for _ in range(siblings):
            made.append(
                Trained(
                    token_ids=[*start, *rng.choices(range(VOCABULARY), k=response)],
                    loss_mask=[False] * prompt + [True] * response,
                    prompt_length=prompt if shared else 0,
                    advantage=rng.gauss(0, 1),
                    weight=1 / (groups * siblings * response),
                )
            )
    return made


def update(model: Any, sequences: Sequence[Trained], budget: int = BUDGET) -> float:
    """Accumulate the gradient of a plain policy gradient, micro-batch by micro-batch; its loss."""
    model.zero_grad()
    total = 0.0
    with packed_attention_of(model):
        for batch in pack(sequences, budget, torch.device("cpu")):
            loss = batch_loss(model, batch, of_tokens(batch)).loss
            torch.autograd.backward(loss)
            total += float(loss.detach())
    return total


def of_tokens(batch: MicroBatch) -> Callable[[slice, Tensor, Tensor | None], tuple[Tensor, dict[str, Tensor]]]:
    """Weight times advantage times log-probability, negative."""

    def of_chunk(chunk: slice, logprobs_C: Tensor, entropy_C: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        scale_C = (batch.weights_M * batch.advantages_M)[chunk].to(logprobs_C)
        return -(scale_C * logprobs_C).sum(), {}

    return of_chunk


def comparisons() -> list[Comparison]:
    """One floor."""
    model = build()
    sides = [rollouts(1, SIBLINGS, PROMPT, RESPONSE, shared=shared) for shared in (True, False)]
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

    def seconds(side: list[Trained]) -> float:
        start = time.perf_counter()
        update(model, side)
        return time.perf_counter() - start

    return [
        Comparison(name="eight-siblings", ours=lambda: seconds(sides[0]), peer=lambda: seconds(sides[1]), floor=4.0)
    ]
