"""Small models of transformers, engines over them, and what they should answer: for the tests of the torch engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.types import Completion, Prompt, Sampling, TokenIds  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from rounding import tolerance  # noqa: E402

VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 700,
    "initializer_range": 0.25,
}
FAMILIES = {
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-untied": (
        "Qwen2",
        {"tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "qwen2-all-heads": ("Qwen2", {"num_key_value_heads": 4}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "llama": ("Llama", {"tie_word_embeddings": False}),
}


def _rows_agree() -> bool:
    rows, weight = (torch.arange(count * 48.0).sin().view(count, 48) for count in (64, VOCABULARY))
    whole = torch.nn.functional.linear(rows, weight)
    return all(torch.equal(torch.nn.functional.linear(rows[:n], weight), whole[:n]) for n in (8, 16, 24))


EQUAL_ROWS = _rows_agree()
"""Not without AVX-512, for which the library of linear algebra has other products: the engine warns of it."""
needs_equal_rows = pytest.mark.skipif(
    not EQUAL_ROWS, reason="on this machine 8 rows of a plain product differ in their bits from the same among 64"
)


def build(family: str = "qwen2-tied", seed: int = 0, **changes: Any) -> Any:
    kind, own = FAMILIES[family]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **own, **changes})
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def engine(model: Any, slots: int = 16, context: int | None = None, **options: Any) -> TorchEngine:
    return TorchEngine(
        TorchEngineConfig(slots=slots, **options), LiveWeights(model), EngineContext(max_context_tokens=context)
    )


def prompts(count: int, seed: int = 0, shortest: int = 3, longest: int = 60) -> list[tuple[int, ...]]:
    generator = random.Random(seed)
    return [
        tuple(generator.randrange(VOCABULARY) for _ in range(generator.randint(shortest, longest)))
        for _ in range(count)
    ]


def as_prompt(ids: Sequence[int]) -> Prompt:
    """A prompt without images."""
    return Prompt(token_ids=TokenIds(ids))


def reference_logprobs(model: Any, tokens: Sequence[int]) -> Any:
    """Log-probabilities [T, V] of the next token after each of the tokens, by transformers, in one pass."""
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([list(tokens)])).logits[0], dim=-1)


def assert_logprobs_are_the_models(model: Any, prompt: Sequence[int], completion: Completion) -> None:
    tokens = [*prompt, *completion.token_ids]
    assert_are_among(completion, model, lambda model: reference_logprobs(model, tokens)[len(prompt) - 1 : -1])


def assert_greedy(model: Any, prompt: Sequence[int], completion: Completion) -> None:
    """Each token is the most likely one, or as likely within the rounding."""
    tokens = [*prompt, *completion.token_ids]
    logprobs = reference_logprobs(model, tokens)[len(prompt) - 1 : -1]
    chosen = logprobs.gather(1, torch.tensor(list(completion.token_ids))[:, None])[:, 0]
    assert (logprobs.amax(-1) - chosen).max() <= tolerance(model, lambda model: reference_logprobs(model, tokens))


def assert_are_among(completion: Completion, model: Any, expected: Callable[[Any], Any]) -> None:
    """Compare the log-probabilities of a completion with those [T, V] that ``expected(model)`` computes."""
    own = torch.tensor(list(completion.logprobs))
    theirs = expected(model).gather(1, torch.tensor(list(completion.token_ids))[:, None])[:, 0]
    torch.testing.assert_close(own, theirs, rtol=0, atol=tolerance(model, expected))


async def generate_all(
    sampler: TorchEngine, requests: Sequence[tuple[Sequence[int], Sampling]], name: str = "s"
) -> list[Completion]:
    calls = [sampler.generate(as_prompt(p), s, session=f"{name}{index}") for index, (p, s) in enumerate(requests)]
    return list(await asyncio.gather(*calls))


async def converse(
    sampler: TorchEngine, name: str, prompt: Sequence[int], seed: int, delay: float = 0.0
) -> list[Completion]:
    """Three turns with observations that depend on the seed alone."""
    generator = random.Random(seed)
    tokens, completions = list(prompt), []
    for turn in range(3):
        await asyncio.sleep(generator.random() * delay)
        sampling = Sampling(max_new_tokens=3 + (seed * 7 + turn * 5) % 25, seed=seed * 10 + turn, stop_token_ids=(5,))
        completion = await sampler.generate(as_prompt(tokens), sampling, session=name)
        completions.append(completion)
        observation = [(seed * 31 + turn * 17 + k) % VOCABULARY for k in range(1 + (seed + turn) % 21)]
        tokens += [*completion.token_ids, *observation]
    await sampler.release(name)
    return completions
