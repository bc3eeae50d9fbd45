"""A lower bound for the time of a GRPO step: a minimal decoding loop and the matrix products of training."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import torch
from torch import Tensor
from transformers import Qwen2Config

ROWS = 2048
"""Tokens per matrix product."""


def fastest(work: Callable[[], object], repeats: int = 3) -> float:
    """The minimum seconds of several calls after a warm-up."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def gemm_rate(size: int = 1024) -> float:
    """GFLOP/s of square products in float32."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / fastest(lambda: a @ b, 20) / 1e9


def shapes(config: Qwen2Config) -> list[tuple[int, int]]:
    """Input and output sizes of the matrices of a layer."""
    head = config.hidden_size // config.num_attention_heads
    inner = (config.num_attention_heads + 2 * config.num_key_value_heads) * head
    width, feed_forward = config.hidden_size, config.intermediate_size
    return [(width, inner), (width, width), (width, 2 * feed_forward), (feed_forward, width)]


def product_s(inputs: int, outputs: int) -> tuple[float, float]:
    """Seconds per token of the forward product and of the two backward products."""
    x, w, dy = torch.randn(ROWS, inputs), torch.randn(outputs, inputs), torch.randn(ROWS, outputs)
    forward = fastest(lambda: x @ w.T)
    backward = fastest(lambda: (dy @ w, dy.T @ x))
    return forward / ROWS, backward / ROWS


def train_s(config: Qwen2Config, rollouts: int, group_size: int, prompt: int, new: int) -> float:
    """Seconds of the products of one update: two forward passes (policy and reference) and one backward pass.

    Each prompt is computed once. The output layer is computed only for generated tokens: one forward product per
    policy and two backward products. Attention is measured with its own shapes, over the visible positions.
    """
    tokens = rollouts * new + rollouts // group_size * prompt
    layer = [product_s(*shape) for shape in shapes(config)]
    head_forward, head_backward = product_s(config.hidden_size, config.vocab_size)
    seconds = config.num_hidden_layers * tokens * sum(2 * forward + backward for forward, backward in layer)
    seconds += rollouts * new * (2 * head_forward + head_backward)
    heads, head = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    seen = prompt + new // 2
    query, key = torch.randn(heads, new, head), torch.randn(heads, seen, head)
    weights = torch.randn(heads, new, seen)
    attend = fastest(lambda: (query @ key.mT, weights @ key), 10)
    return seconds + config.num_hidden_layers * rollouts * 4 * attend  # two forward passes, one backward of twice that


@torch.inference_mode()
def decode_s(config: Qwen2Config, rollouts: int, group_size: int, prompt: int, new: int) -> float:
    """Seconds to sample ``new`` tokens for every rollout in a plain loop with a preallocated cache.

    The prompt of each group is computed once and copied. There is no scheduler and no stopping. Only the sampled tokens
    and their log-probabilities are kept.
    """
    started = time.perf_counter()
    heads, head = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    layers, width, feed_forward = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    qkv, out, up, down, embedding = _weights(layers, width, feed_forward, config.vocab_size)
    length = prompt + new
    keys = torch.zeros(layers, rollouts, heads, length, head)
    values = torch.zeros_like(keys)
    cos, sin = _rotary(length, head)

    def forward(x_RTD: Tensor, first: int, rows: slice, *, causal: bool) -> Tensor:
        count, steps = x_RTD.shape[:2]
        end = first + steps
        for layer in range(layers):
            normed = torch.nn.functional.rms_norm(x_RTD, (width,))
            q, k, v = (normed @ qkv[layer]).view(count, steps, 3, heads, head).permute(2, 0, 3, 1, 4)
            q, k = (_rotate(tensor, cos[first:end], sin[first:end]) for tensor in (q, k))
            keys[layer, rows, :, first:end], values[layer, rows, :, first:end] = k, v
            seen_k, seen_v = keys[layer, rows, :, :end], values[layer, rows, :, :end]
            mixed = torch.nn.functional.scaled_dot_product_attention(q, seen_k, seen_v, is_causal=causal)
            x_RTD = x_RTD + mixed.transpose(1, 2).reshape(count, steps, width) @ out[layer]
            gate, linear = (torch.nn.functional.rms_norm(x_RTD, (width,)) @ up[layer]).chunk(2, -1)
            x_RTD = x_RTD + (torch.nn.functional.silu(gate) * linear) @ down[layer]
        return torch.nn.functional.rms_norm(x_RTD[:, -1], (width,)) @ embedding.T

    prompts = torch.randint(0, config.vocab_size, (rollouts // group_size, prompt))
    groups = slice(0, rollouts, group_size)
    logits = forward(embedding[prompts], 0, groups, causal=True).repeat_interleave(group_size, 0)
    for cache in (keys, values):
        cache[..., :prompt, :] = cache[:, groups, :, :prompt].repeat_interleave(group_size, 1)
    for step in range(new):
        logprobs = logits.log_softmax(-1)
        tokens = torch.multinomial(logprobs.exp(), 1)
        logprobs.gather(1, tokens)
        if step < new - 1:
            logits = forward(embedding[tokens], prompt + step, slice(None), causal=False)
    return time.perf_counter() - started


@functools.cache
def _weights(
    layers: int, width: int, feed_forward: int, vocabulary: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    def normal(*shape: int) -> Tensor:
        return 0.05 * torch.randn(*shape)

    return (
        normal(layers, width, 3 * width),
        normal(layers, width, width),
        normal(layers, width, 2 * feed_forward),
        normal(layers, feed_forward, width),
        normal(vocabulary, width),
    )


def _rotary(length: int, head: int) -> tuple[Tensor, Tensor]:
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, head, 2) / head)
    return torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
