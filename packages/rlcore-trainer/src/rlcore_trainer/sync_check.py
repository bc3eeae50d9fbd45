"""Whether the engine holds the policy's weights: a fixed prompt must get the policy's tokens and log-probabilities.

A transfer can fail without an error, for one tensor only (a tied output layer, a packed copy), and training then goes
on with samples of a policy that nobody has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rlcore.contracts import Executor
from rlcore.errors import EngineError
from rlcore.types import Completion, Sampling
from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.lora import has_adapter, values_of, write_values
from rlcore_trainer.model import PolicyWeights

PROMPT_TOKENS = 8
NEW_TOKENS = 4
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}
"""Nats by which a token's log-probability may differ, on average: what rounding does, and stale weights exceed."""


def compare(executor: Executor, model: PreTrainedModel, *, version: int) -> float:
    """The mean difference in nats between the engine's log-probabilities and the policy's, on the fixed prompt.

    Raises:
        EngineError: it is too large, or the tokens are not greedy under the policy, or another version answered.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    assert isinstance(vocabulary, int)
    prompt = [(7 * t * t + 5 * t + 3) % vocabulary for t in range(PROMPT_TOKENS)]
    answer = executor.generate(prompt, Sampling(max_new_tokens=NEW_TOKENS, temperature=0.0))
    own_T, best_T = _policy_logprobs(model, prompt, answer)
    engine_T = torch.tensor(answer.logprobs, dtype=torch.float64)
    gap = float((engine_T - own_T).abs().mean())
    behind = float((best_T - own_T).max())
    tolerance = TOLERANCE[model.dtype]
    if answer.policy_version != version:
        raise EngineError(f"the engine answers with version {answer.policy_version} of the weights, not {version}")
    if not (gap <= tolerance and behind <= 2 * tolerance):
        raise EngineError(
            f"the engine does not hold the policy's weights of version {version}: on a fixed prompt its "
            f"log-probabilities differ by {gap:.3g} nats on average ({tolerance:g} may be rounding), and its greedy "
            f"tokens lie {behind:.3g} nats behind the policy's own"
        )
    return gap


def prove(executor: Executor, model: PreTrainedModel, weights: PolicyWeights) -> None:
    """Show once that every tensor arrives: compare after a transfer of the weights turned upside down.

    An engine that has read the same folder as the trainer agrees with it whether or not anything is transferred. Each
    tensor's order along its first axis is reversed, which nothing mistakes for the original, and small matrices are
    multiplied by a power of two, so that each has a say in the logits. Both are undone without a trace. Of a policy
    that is an adapter on a base, the adapter is turned, as the base is never transferred.
    """
    with _upside_down(model):
        executor.sync_weights(weights)
        try:
            compare(executor, model, version=weights.version)
        except EngineError as error:
            raise EngineError(f"the transfer of weights to the engine does not work: {error}") from error
    executor.sync_weights(weights)


@torch.no_grad()
def _policy_logprobs(model: PreTrainedModel, prompt: list[int], answer: Completion) -> tuple[Tensor, Tensor]:
    """Of each of the answer's tokens, and of the most likely token at its place; both float64 [T]."""
    ids_1T = torch.tensor([[*prompt, *answer.token_ids]], device=model.device)
    logits_TV = model(input_ids=ids_1T[:, :-1], use_cache=False).logits[0, len(prompt) - 1 :]
    logprobs_TV = logits_TV.float().log_softmax(-1)
    own_T = logprobs_TV.gather(1, ids_1T[0, len(prompt) :, None])[:, 0]
    return own_T.double().cpu(), logprobs_TV.max(dim=-1).values.double().cpu()


@contextmanager
def _upside_down(model: PreTrainedModel) -> Iterator[None]:
    if has_adapter(model):
        before = values_of(model)
        write_values(model, {name: _turned(value) for name, value in before.items()})
        try:
            yield
        finally:
            write_values(model, before)
        return
    factors = [_factor(parameter.detach()) for parameter in model.parameters()]
    _reverse(model, factors)
    try:
        yield
    finally:
        _reverse(model, [1 / factor for factor in factors])


def _turned(value: Tensor) -> Tensor:
    """Of an adapter's tensor, what nobody has; a new adapter's zeros would have no say at all."""
    if not value.any():
        return torch.arange(value.numel()).cos().div(math.sqrt(value.shape[-1])).view(value.shape).to(value)
    return value.flip(0) * _factor(value)


def _factor(tensor: Tensor) -> float:
    """The power of two that brings a matrix to entries of about ``1 / sqrt(fan in)``; 1 where they are larger."""
    size = float(tensor.float().square().mean().sqrt()) * math.sqrt(tensor.shape[-1])
    return 2.0 ** max(0, round(-math.log2(size))) if tensor.ndim > 1 and 0 < size < math.inf else 1.0


@torch.no_grad()
def _reverse(model: PreTrainedModel, factors: list[float]) -> None:
    for parameter, factor in zip(model.parameters(), factors, strict=True):
        parameter.copy_(parameter.flip(0) * factor)
