from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from rlcore.errors import UserError
from rlcore.models.adapter import FINGERPRINT, check_base, is_adapter, read_settings
from rlcore.models.fingerprint import fingerprint_of_folder
from rlcore.models.folder import base_of, local_base, local_folder


def safetensors(path: Path, tensors: dict[str, bytes], metadata: dict[str, str] | None = None) -> None:
    """A file of vectors of bytes."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at := at + len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


LONG = bytes(range(256)) * 16


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    safetensors(folder / "model.safetensors", {"a": LONG, "b": b"12345"})
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    return folder


def adapter(folder: Path, base: Path | None, fingerprint: str | None, **settings: Any) -> Path:
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": 4, "base_model_name_or_path": str(base) if base else None, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    safetensors(folder / "adapter_model.safetensors", {"x": b"1"}, {FINGERPRINT: fingerprint} if fingerprint else None)
    return folder


def test_fingerprint_does_not_depend_on_sharding(base: Path, tmp_path: Path) -> None:
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    safetensors(sharded / "one.safetensors", {"b": b"12345"})
    safetensors(sharded / "two.safetensors", {"a": LONG}, {"format": "pt"})
    places = {"a": "two.safetensors", "b": "one.safetensors"}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    assert fingerprint_of_folder(base) == fingerprint_of_folder(sharded)


@pytest.mark.parametrize("tensors", [{"a": LONG, "b": b"12346"}, {"a": LONG, "c": b"12345"}, {"a": LONG}])
def test_different_models_have_different_fingerprints(base: Path, tmp_path: Path, tensors: dict[str, bytes]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    safetensors(other / "model.safetensors", tensors)
    assert fingerprint_of_folder(base) != fingerprint_of_folder(other)


def test_weights_in_other_formats_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError) as caught:
        fingerprint_of_folder(tmp_path)
    assert (caught.value.found, caught.value.where) == ("pytorch_model.bin", str(tmp_path))
    assert "rlcore merge" in str(caught.value.fix)


def test_base_is_found_and_checked(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, fingerprint_of_folder(base))
    assert is_adapter(folder)
    assert not is_adapter(base)
    assert base_of(folder) == base
    assert check_base(folder, base)
    assert local_folder(str(folder)) == folder


def test_wrong_base_message(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, "0" * 32)
    with pytest.raises(UserError) as caught:
        base_of(folder)
    assert str(caught.value).splitlines() == [
        "the adapter was trained on another base model",
        f"  found  fingerprint of the base {fingerprint_of_folder(base)}, expected by the adapter {'0' * 32}",
        f"  from   {folder}, base {base}",
        "  fix    give the base that it was trained on: after fine-tuning and merging, this is the merged model",
    ]


def test_adapter_without_a_fingerprint_is_accepted(base: Path, tmp_path: Path) -> None:
    assert not check_base(adapter(tmp_path / "adapter", base, None), base)


def test_base_of_a_moved_run_is_found(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = adapter(run / "checkpoints/000001/model", Path("/gone/model"), fingerprint_of_folder(base))
    with pytest.raises(UserError) as caught:
        base_of(folder)
    assert "/gone/model" in str(caught.value.found)
    base.rename(run / "model")
    (run / "config.toml").touch()
    assert base_of(folder) == run / "model"


def test_base_on_the_hub_is_not_downloaded_early(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", Path("owner/name"), None)
    assert local_base(folder) is None
    assert local_folder(str(folder)) == folder
    base.rename(tmp_path / "name")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path.parent)
        settings = (folder / "adapter_config.json").read_text(encoding="utf-8")
        here = f"{tmp_path.name}/name"
        (folder / "adapter_config.json").write_text(settings.replace("owner/name", here), encoding="utf-8")
        assert local_base(folder) == Path(here)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "adapter_model.safetensors"),
        (lambda folder: (folder / "adapter_config.json").write_text("{", encoding="utf-8"), "line 1 column 2"),
        (lambda folder: (folder / "adapter_config.json").write_text('{"peft_type": "IA3"}'), "peft_type IA3"),
    ],
)
def test_invalid_adapter_is_rejected(base: Path, tmp_path: Path, damage: Any, found: str) -> None:
    folder = adapter(tmp_path / "adapter", base, None)
    damage(folder)
    with pytest.raises(UserError) as caught:
        read_settings(folder)
    assert found in str(caught.value.found)
    assert str(folder) in str(caught.value.where)


def test_damaged_adapter_weights_are_rejected(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, None)
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(UserError) as caught:
        check_base(folder, base)
    assert caught.value.where == str(folder / "adapter_model.safetensors")


def test_adapter_without_a_tokenizer_is_rejected(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, fingerprint_of_folder(base))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError) as caught:
        local_folder(str(folder))
    assert "tokenizer.json" in caught.value.message
    assert str(base) in str(caught.value.fix)


def test_run_without_a_checkpoint_is_rejected(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").touch()
    base.rename(run / "model")
    with pytest.raises(UserError) as caught:
        local_folder(str(run))
    assert caught.value.where == str(run)
    assert f"--resume {run}" in str(caught.value.fix)
    assert str(run / "model") in str(caught.value.fix)
    assert local_folder(str(run / "model")) == (run / "model").resolve()  # given explicitly
