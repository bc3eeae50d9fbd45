"""Sizes in a model's ``config.json``, checked before a library allocates memory for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore.models.config_file import LIMITS, check_config, read_config
from rlcore.models.fingerprint import fingerprint_of_folder

GOOD: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 600,
    "max_position_embeddings": 128,
}


def folder_with(path: Path, config: object, *, weight_bytes: int = 200_000) -> Path:
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (path / "model.safetensors").write_bytes(b"\0" * weight_bytes)
    return path


def test_config_of_a_model_is_accepted(tmp_path: Path) -> None:
    check_config(folder_with(tmp_path, GOOD))
    assert read_config(tmp_path) == GOOD
    check_config(folder_with(tmp_path, {"text_config": GOOD, "vision_config": {"depth": 2}}))
    check_config(folder_with(tmp_path, {**GOOD, "hidden_size": 30, "head_dim": 8}))


@pytest.mark.parametrize("value", [0, -1, "2", 1.5, True, [], 10**24])
@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("outer", [False, True])
def test_size_that_is_no_count_is_rejected(tmp_path: Path, name: str, value: object, outer: bool) -> None:
    config = {**GOOD, name: value}
    with pytest.raises(UserError) as raised:
        check_config(folder_with(tmp_path, {"text_config": config} if outer else config))
    assert raised.value.where == str(tmp_path / "config.json")
    assert name in raised.value.message


VISION: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 32,
    "num_heads": 4,
    "intermediate_size": 64,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in VISION for value in (0, -1, "2", 1.5, True, [], 10**24)),
        {"num_heads": 3},
        {"depth": 2**10},
        {"intermediate_size": 2**20},
        {"hidden_size": 2**18},
        {"embed_dim": 2**17},
    ],
)
def test_hostile_size_of_an_image_encoder_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    config = {"model_type": "qwen2_5_vl", "text_config": GOOD}
    check_config(folder_with(tmp_path, {**config, "vision_config": VISION}))
    with pytest.raises(UserError, match=r"config\.json (needs|must match)") as raised:
        check_config(folder_with(tmp_path, {**config, "vision_config": {**VISION, **change}}))
    assert raised.value.where == str(tmp_path / "config.json")


def test_image_encoder_of_another_family_may_have_lists(tmp_path: Path) -> None:
    config = {"model_type": "internvl", "text_config": GOOD, "vision_config": {"patch_size": [14, 14], "depth": 2}}
    check_config(folder_with(tmp_path, config))
    config["vision_config"] = {"depth": 10**9}
    with pytest.raises(UserError, match="depth"):
        check_config(folder_with(tmp_path, config))
    config["vision_config"] = [1]
    with pytest.raises(UserError, match="needs an object as vision_config"):
        check_config(folder_with(tmp_path, config))


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": 3},
        {"num_key_value_heads": 3},
        {"hidden_size": 33},
        {"vocab_size": 2**24},
        {"hidden_size": 2**18},
        {"num_hidden_layers": 1000, "hidden_size": 512},
    ],
)
def test_sizes_that_do_not_fit_together_are_rejected(tmp_path: Path, change: dict[str, int]) -> None:
    with pytest.raises(UserError) as raised:
        check_config(folder_with(tmp_path, {**GOOD, **change}))
    assert raised.value.where == str(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 5000, '{"hidden_size": ' + "9" * 5000 + "}", "\xff"])
def test_damaged_config_is_rejected(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError) as raised:
        check_config(tmp_path)
    assert raised.value.where == str(tmp_path / "config.json")


ENTRIES = st.recursive(
    st.one_of(st.none(), st.integers(-2, 2**40), st.text(max_size=3)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["shape", "data_offsets", "dtype", "__metadata__"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(entry=ENTRIES, metadata=ENTRIES)
def test_any_header_of_weights_gives_a_fingerprint_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, entry: Any, metadata: Any
) -> None:
    folder = tmp_path_factory.mktemp("weights")
    header = json.dumps({"a": entry, "__metadata__": metadata}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)
    try:
        found = fingerprint_of_folder(folder)
    except UserError:
        return
    assert len(found) == 32
