"""CPU threads for a model, and checks of its weights."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

import pytest
from rlcore.errors import UserError
from rlcore.models.weights import SMALL_MODEL, check_layers, cpu_threads, let_waiting_threads_sleep


def test_small_models_use_one_thread_unless_omp_num_threads_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert cpu_threads(SMALL_MODEL - 1) == 1
    assert cpu_threads(SMALL_MODEL) is None
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert cpu_threads(1) is None


def test_sleeping_threads_are_not_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")  # so that it is restored afterwards
    monkeypatch.delenv("GOMP_SPINCOUNT")
    let_waiting_threads_sleep()
    assert cpu_threads(1) == 1
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.delenv("OMP_WAIT_POLICY")
    let_waiting_threads_sleep()
    assert cpu_threads(1) is None
    assert os.environ["GOMP_SPINCOUNT"] == "1000"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    let_waiting_threads_sleep()
    assert os.environ["GOMP_SPINCOUNT"] == "7"


def test_wait_policy_is_not_set_after_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setitem(sys.modules, "torch", sys)
    let_waiting_threads_sleep()
    assert cpu_threads(1) == 1


def folder_with(folder: Path, names: list[str], **config: object) -> Path:
    """A model folder whose weights have these names, without their data."""
    header = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in names}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


OF_LAYER = ["model.layers.{}.mlp.weight", "model.language_model.layers.{}.a", "language_model.model.layers.{}.a"]


@pytest.mark.parametrize("name", OF_LAYER)
@pytest.mark.parametrize("config", [{"num_hidden_layers": 2}, {"text_config": {"num_hidden_layers": 2}}])
def test_weights_of_more_layers_than_the_model_are_rejected(
    tmp_path: Path, name: str, config: dict[str, object]
) -> None:
    check_layers(folder_with(tmp_path, [name.format(0), name.format(1)], **config))
    with pytest.raises(UserError) as caught:
        check_layers(folder_with(tmp_path, [name.format(0), name.format(2)], **config))
    assert name.format(2) in (caught.value.found or "")


@pytest.mark.parametrize(
    "name", ["model.layers.2.mlp.weight", "visual.blocks.9.a", "audio_tower.layers.9.a", "lm_head"]
)
def test_further_predictions_and_encoders_are_not_layers_of_the_model(tmp_path: Path, name: str) -> None:
    check_layers(folder_with(tmp_path, [name], num_hidden_layers=2, num_nextn_predict_layers=1))
