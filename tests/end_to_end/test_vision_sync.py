"""The check of weight transfers covers the image encoder of a vision-language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_alone import EngineAlone
from rlcore.errors import EngineError
from rlcore_rollout.engines.context import EngineContext
from rlcore_rollout.engines.torch.config import TorchEngineConfig
from rlcore_rollout.engines.torch.engine import TorchEngine
from rlcore_trainer.controller.sync_check import compare, fixed_prompt, prove
from rlcore_trainer.policy.causal_lm import CausalLanguageModel
from vision_folders import Family, vision_folder

FAMILIES: tuple[Family, ...] = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.fixture(params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, CausalLanguageModel]]:
    """An engine with weights of its own, and the policy."""
    folder = vision_folder(tmp_path / "model", request.param)
    policy = CausalLanguageModel.load(folder, dtype="float32", device=torch.device("cpu"))
    source = CausalLanguageModel.load(folder, dtype="float32", device=torch.device("cpu"))
    sampler = EngineAlone(TorchEngine(TorchEngineConfig(slots=1), source, EngineContext(max_context_tokens=64)))
    yield sampler, policy
    sampler.close()


def test_fixed_prompt_of_a_vision_language_model_has_a_picture(pair: tuple[Any, CausalLanguageModel]) -> None:
    _, policy = pair
    prompt = fixed_prompt(policy)
    assert [span.length for span in prompt.media] == [6]
    assert prompt == fixed_prompt(policy)


def test_image_encoder_without_an_update_is_detected(pair: tuple[Any, CausalLanguageModel]) -> None:
    sampler, policy = pair
    assert compare(sampler, policy) < 1e-4
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if "visual" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    with pytest.raises(EngineError, match="nats"):
        compare(sampler, policy)
    sampler.update_weights(policy)
    assert compare(sampler, policy) < 1e-4


def test_transfer_of_a_vision_language_model_is_proved(pair: tuple[Any, CausalLanguageModel]) -> None:
    sampler, policy = pair
    before = {name: parameter.clone() for name, parameter in policy.module.named_parameters()}
    prove(sampler, policy)
    assert all(torch.equal(parameter, before[name]) for name, parameter in policy.module.named_parameters())
