"""The conformance suite, and the engine against its own model."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from rl_plugin_plain_sampling.config import PlainSamplingConfig
from rl_plugin_plain_sampling.engine import PlainSampling
from rlcore import Completion, NamedTensor, Prompt, Sampling, TokenIds
from rlcore.testing import check_engine, check_plugin
from rlcore_models.builtin.config import TinyQwen2Config
from rlcore_models.builtin.tiny_qwen2 import build
from rlcore_models.streaming import named_tensors
from rlcore_rollout.engines.context import EngineContext
from transformers import AutoModelForCausalLM

PROMPT = TokenIds([5, 6, 7])


@dataclass
class Source:
    """The weights of a model as a run offers them; None for those of the folder."""

    folder: Path
    model: Any = None
    version: int = 0
    adapter: None = None

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor] | None:
        return None if self.model is None else named_tensors(self.model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    build(folder, ["one two three four"] * 50, 0, TinyQwen2Config(layers=1, width=32, feed_forward=32))
    return folder


def sampled(engine: PlainSampling, **options: Any) -> Completion:
    sampling = Sampling(max_new_tokens=6, **options)
    return asyncio.run(engine.generate(Prompt(token_ids=PROMPT), sampling, session="1"))


def logprobs_of(model: Any, completion: Completion) -> list[float]:
    ids = [*PROMPT, *completion.token_ids]
    logits_TV = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [float(logits_TV[place - 1, ids[place]]) for place in range(len(PROMPT), len(ids))]


def test_plugin_conforms() -> None:
    check_plugin("plain-sampling")


@torch.no_grad()
@pytest.mark.parametrize(("temperature", "cache"), [(0.0, True), (2.0, True), (2.0, False)])
def test_log_probabilities_are_those_of_the_loaded_weights(folder: Path, temperature: float, cache: bool) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    engine = PlainSampling(PlainSamplingConfig(cache=cache), Source(folder), EngineContext(device="cpu"))
    for version in (1, 2):
        found = sampled(engine, temperature=temperature)
        assert found.logprobs == pytest.approx(logprobs_of(model, found), abs=1e-4)
        for parameter in model.parameters():
            parameter.mul_(1.5)
        assert asyncio.run(engine.load_weights(Source(folder, model, version))) == version
    assert sampled(engine).policy_version == 2


def test_engine_conforms_while_the_weights_change(folder: Path) -> None:
    source = Source(folder, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False))

    def train() -> None:
        source.version += 1
        with torch.no_grad():
            for parameter in source.model.parameters():
                parameter.mul_(1.1)

    engine = PlainSampling(PlainSamplingConfig(), source, EngineContext(device="cpu"))
    check_engine(engine, source, Prompt(token_ids=PROMPT), train)


def test_generation_ends_at_a_stop_token_and_at_the_context(folder: Path) -> None:
    engine = PlainSampling(PlainSamplingConfig(), Source(folder), EngineContext(device="cpu", max_context_tokens=5))
    found = sampled(engine, seed=3)
    assert (len(found.token_ids), found.finish_reason) == (2, "length")
    again = sampled(engine, seed=3, stop_token_ids=(found.token_ids[0],))
    assert (list(again.token_ids), again.finish_reason) == ([found.token_ids[0]], "stop")
