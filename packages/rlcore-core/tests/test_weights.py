"""Checks of the weights in a model folder."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from rlcore.errors import UserError
from rlcore.models.weights import check_layers


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
