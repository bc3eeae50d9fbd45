"""What the torch engine loads and what it refuses to."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import UserError  # noqa: E402
from rlcore.models.weights import FolderWeights  # noqa: E402
from rlcore.types import Sampling  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from torch_models import (  # noqa: E402
    as_prompt,
    assert_logprobs_are_the_models,
    build,
    engine,
)


def test_folder_is_loaded_without_a_module(tmp_path: Path) -> None:
    model = build("qwen3")
    model.save_pretrained(tmp_path)

    async def main() -> None:
        sampler = TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))
        completion = await sampler.generate(as_prompt((1, 2, 3)), Sampling(max_new_tokens=5), session="a")
        assert_logprobs_are_the_models(model, (1, 2, 3), completion)
        await sampler.close()

    asyncio.run(main())


def test_weights_are_copied_if_the_trainer_changes_them_meanwhile() -> None:
    model = build("qwen3")
    live, context = LiveWeights(model), EngineContext(device="cpu", sampled_during_updates=True)
    asked = Sampling(max_new_tokens=5, temperature=0.0)

    async def main() -> None:
        sampler = TorchEngine(TorchEngineConfig(), live, context)
        before = await sampler.generate(as_prompt((1, 2, 3)), asked, session="a")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        same = await sampler.generate(as_prompt((1, 2, 3)), asked, session="b")
        assert (same.token_ids, same.logprobs) == (before.token_ids, before.logprobs)
        await sampler.load_weights(live)
        changed = await sampler.generate(as_prompt((1, 2, 3)), asked, session="c")
        assert_logprobs_are_the_models(model, (1, 2, 3), changed)
        assert changed.logprobs != before.logprobs
        await sampler.close()

    asyncio.run(main())


def test_modules_that_are_no_language_models_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    with pytest.raises(UserError) as refusal:
        TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext())
    assert refusal.value.where == str(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_damaged_folder_is_rejected(tmp_path: Path, name: str) -> None:
    build("qwen3").save_pretrained(tmp_path)
    (tmp_path / name).write_bytes(b'{"a": ' * 20)
    with pytest.raises(UserError, match=r"cannot be (loaded|read)"):
        TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quantization_config": {"quant_method": "gguf"}}, "quantization that the weights do not have"),
        ({"eos_token_id": 2}, "eos_token_id must be an id"),
    ],
)
def test_contradicting_configuration_is_named_before_weights_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], message: str
) -> None:
    build("qwen3").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 1}}}', encoding="utf-8")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", None)
    with pytest.raises(UserError, match=message) as caught:
        TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))
    assert caught.value.where == str(path)


def test_missing_weights_are_rejected(tmp_path: Path) -> None:
    model = build("qwen3")
    weights = {name: weight for name, weight in model.state_dict().items() if "layers.0.mlp" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(UserError) as caught:
        TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))
    assert "layers.0.mlp" in (caught.value.found or "")


def test_more_layers_of_weights_than_the_configuration_are_rejected(tmp_path: Path) -> None:
    build("qwen3").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    layers = config["num_hidden_layers"] - 1
    types = config.get("layer_types", ())[:layers]
    smaller = {**config, "num_hidden_layers": layers, "layer_types": types}
    (tmp_path / "config.json").write_text(json.dumps(smaller), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))
    assert f"layers.{layers}." in (caught.value.found or "")


def test_weights_of_integers_are_rejected(tmp_path: Path) -> None:
    model = build("qwen3")
    weights = {name: weight * 100 for name, weight in model.state_dict().items()}
    model.save_pretrained(tmp_path, state_dict={name: weight.to(torch.int8) for name, weight in weights.items()})
    with pytest.raises(UserError) as caught:
        TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path), EngineContext(device="cpu"))
    assert "I8" in (caught.value.found or "")


def test_small_models_are_copied_and_large_ones_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_rollout.engines.torch.weights.FUSED_BYTES", 0)
    from rlcore_rollout.engines.torch.weights import read_weights

    model = build("qwen2-untied")
    weights = read_weights(model)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    layer = weights.layers[0]
    projections = (*layer.query_key_value, *layer.gate_up, layer.down, layer.attention_output, weights.head.projection)
    assert all(projection.weight_OI.data_ptr() in own for projection in projections)


def test_probe_detects_rows_that_depend_on_their_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rlcore_rollout.engines.torch.engine.independent_rows", lambda *_: None)
    with pytest.raises(UserError, match="deterministic"):
        engine(build(), deterministic=True)
    assert not engine(build()).deterministic
    assert "not bit-reproducible" in caplog.text
    assert not engine(build(), deterministic=False).deterministic
