"""The torch engine samples from a policy that is an adapter on a base: its log-probabilities are peft's own."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import UserError  # noqa: E402
from rlcore.models.weights import FolderWeights  # noqa: E402
from rlcore.types import Completion, Sampling  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from rlcore_rollout.engines.torch.weights import read_weights  # noqa: E402
from torch_models import as_prompt, assert_are_among, build, engine  # noqa: E402
from vision_models import FAMILIES as VISION_FAMILIES  # noqa: E402
from vision_models import vision_language_model  # noqa: E402
from vision_prompts import PAD, assert_equals_transformers, drawn, prompt_of, vision_engine  # noqa: E402

pytestmark = pytest.mark.numeric

KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "some layers": {"target_modules": ["q_proj", "up_proj"], "rank_pattern": {"up_proj": 2}},
    "whole layers beside": {"target_modules": ["v_proj"], "modules_to_save": ["lm_head", "norm", "embed_tokens"]},
}


def put_on(model: Any, kind: str) -> Any:
    """An adapter that changes something, put into the model in place."""
    table = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **KINDS[kind]}
    wrapped = peft.get_peft_model(model, peft.LoraConfig(**table))
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return wrapped.eval()


def sample(sampler: TorchEngine) -> Completion:
    async def main() -> Completion:
        made = await sampler.generate(as_prompt((1, 2, 3)), Sampling(max_new_tokens=9, temperature=0.0), session="a")
        await sampler.close()
        return made

    return asyncio.run(main())


@torch.no_grad()
def assert_it_is_pefts(wrapped: Any, made: Completion) -> None:
    ids = torch.tensor([[1, 2, 3, *made.token_ids]])
    assert_are_among(made, wrapped, lambda model: model(input_ids=ids[:, :-1]).logits[0, 2:].log_softmax(-1))


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["qwen2-untied", "qwen3"])
def test_log_probabilities_equal_peft(family: str, kind: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fused:
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    wrapped = put_on(build(family), kind)
    assert_it_is_pefts(wrapped, sample(engine(wrapped.base_model.model)))


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_adapter_on_text_model_and_vision_tower_is_used(family: str, kind: str) -> None:
    plain = vision_language_model(family)
    model = put_on(vision_language_model(family), kind).base_model.model
    assert any("visual" in name and "lora" in name for name, _ in model.named_parameters())
    prompt = prompt_of(family, [1, 2], drawn(family, 4, 3), [3])

    async def main() -> Completion:
        sampler = vision_engine(family, model)
        made = await sampler.generate(prompt, Sampling(max_new_tokens=9, suppressed_token_ids=(PAD,)), session="a")
        await sampler.close()
        return made

    made = asyncio.run(main())
    assert_equals_transformers(family, model, prompt, made)
    with pytest.raises(AssertionError):
        assert_equals_transformers(family, plain, prompt, made)


@pytest.mark.parametrize("fused", [True, False])
def test_adapter_changes_while_a_completion_continues(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fused:
        monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    wrapped = put_on(build("qwen3"), "dora")
    live = LiveWeights(wrapped.base_model.model, version=0)

    async def main() -> Completion:
        context = EngineContext(device="cpu", sampled_during_updates=True)
        sampler = TorchEngine(TorchEngineConfig(slots=8), live, context)
        long = Sampling(max_new_tokens=100, temperature=0.0)
        running = asyncio.create_task(sampler.generate(as_prompt((1, 2, 3)), long, session="running"))
        before = await sampler.generate(as_prompt((1, 2, 3)), replace(long, max_new_tokens=9), session="before")
        assert_it_is_pefts(wrapped, before)
        with torch.no_grad():
            for parameter in wrapped.parameters():
                if parameter.requires_grad:
                    parameter.mul_(1.5)
        live.version = 1
        await sampler.load_weights(live)
        after = await sampler.generate(as_prompt((1, 2, 3)), replace(long, max_new_tokens=9), session="after")
        assert [span.version for span in (await running).versions] == [0, 1]
        await sampler.close()
        return after

    after = asyncio.run(main())
    assert after.policy_version == 1
    assert_it_is_pefts(wrapped, after)


def test_large_base_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    model = put_on(build("qwen2-untied"), "dora").base_model.model
    own = {parameter.data_ptr() for parameter in model.parameters()}
    for layer in read_weights(model).layers:
        projections = (*layer.query_key_value, *layer.gate_up, layer.down, layer.attention_output)
        assert all(projection.weight_OI.data_ptr() in own for projection in projections)
        assert all(projection.low_rank is not None for projection in projections)


def test_adapter_folder_uses_the_base_that_it_names(tmp_path: Path) -> None:
    build("qwen3").save_pretrained(tmp_path / "base")
    wrapped = put_on(build("qwen3"), "lora")
    wrapped.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    wrapped.save_pretrained(tmp_path / "adapter")
    source = FolderWeights(folder=tmp_path / "adapter")
    assert_it_is_pefts(wrapped, sample(TorchEngine(TorchEngineConfig(), source, EngineContext(device="cpu"))))
    settings = json.loads((tmp_path / "adapter/adapter_config.json").read_text(encoding="utf-8"))
    settings["base_model_name_or_path"] = str(tmp_path / "elsewhere")
    (tmp_path / "adapter/adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        TorchEngine(TorchEngineConfig(), source, EngineContext(device="cpu"))
    assert "elsewhere" in (caught.value.found or "")
