"""The torch engine samples from a quantised base: its log-probabilities are the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytest.importorskip("bitsandbytes")
pytest.importorskip("accelerate")

from live_weights import LiveWeights  # noqa: E402
from rlcore.errors import NotInstalledError  # noqa: E402
from rlcore.models.weights import FolderWeights  # noqa: E402
from rlcore_rollout.engines.context import EngineContext  # noqa: E402
from rlcore_rollout.engines.torch.config import TorchEngineConfig  # noqa: E402
from rlcore_rollout.engines.torch.engine import TorchEngine  # noqa: E402
from rlcore_rollout.engines.torch.weights import model_of, read_weights  # noqa: E402
from test_torch_engine_adapter import assert_it_is_pefts, put_on, sample  # noqa: E402
from torch_models import build  # noqa: E402

NF4 = EngineContext(device="cpu", quantization="nf4")


@pytest.fixture(params=["qwen2-tied", "qwen2-untied", "qwen3"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    build(request.param).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("kind", ["none", "lora", "dora", "whole layers beside"])
def test_log_probabilities_equal_peft(base: Path, kind: str) -> None:
    model: Any = model_of(FolderWeights(folder=base), NF4)
    if kind == "none":
        assert_it_is_pefts(model, sample(TorchEngine(TorchEngineConfig(), LiveWeights(model), NF4)))
        return
    wrapped = put_on(model, kind)
    assert_it_is_pefts(wrapped, sample(TorchEngine(TorchEngineConfig(), LiveWeights(wrapped.base_model.model), NF4)))


def test_quantised_weights_are_read_in_place(base: Path) -> None:
    model: Any = model_of(FolderWeights(folder=base), NF4)
    own = {parameter.data_ptr() for parameter in model.parameters()}
    weights = read_weights(model)
    assert weights.dtype == torch.float32
    assert weights.head.projection.quantised is None
    for layer in weights.layers:
        for projection in (*layer.query_key_value, *layer.gate_up, layer.down, layer.attention_output):
            assert projection.quantised is not None
            assert projection.weight_OI.data_ptr() in own


def test_adapter_folder_uses_the_quantised_base(base: Path, tmp_path: Path) -> None:
    wrapped = put_on(model_of(FolderWeights(folder=base), NF4), "lora")
    wrapped.peft_config["default"].base_model_name_or_path = str(base)
    wrapped.save_pretrained(tmp_path / "adapter")
    sampler = TorchEngine(TorchEngineConfig(), FolderWeights(folder=tmp_path / "adapter"), NF4)
    assert_it_is_pefts(wrapped, sample(sampler))


def test_missing_bitsandbytes_names_the_install_command(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_models.quantization.NEEDS", ("bitsandbytes>=999",))
    with pytest.raises(NotInstalledError, match=r"model\.quantization=nf4") as caught:
        model_of(FolderWeights(folder=base), NF4)
    assert "rlcore[quantization]" in str(caught.value)
