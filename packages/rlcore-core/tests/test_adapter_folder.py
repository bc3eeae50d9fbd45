from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from rlcore.adapter_folder import FINGERPRINT, check_base, is_adapter, read_settings
from rlcore.errors import UserError
from rlcore.fingerprint import fingerprint_of_folder
from rlcore.model_folder import base_of, local_base, local_folder


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


def adapter(folder: Path, base: Path | None, said: str | None, **settings: Any) -> Path:
    folder.mkdir(parents=True)
    settings = {"peft_type": "LORA", "r": 4, "base_model_name_or_path": str(base) if base else None, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    safetensors(folder / "adapter_model.safetensors", {"x": b"1"}, {FINGERPRINT: said} if said else None)
    return folder


def test_a_fingerprint_does_not_depend_on_the_files(base: Path, tmp_path: Path) -> None:
    sharded = tmp_path / "sharded"
    sharded.mkdir()
    safetensors(sharded / "one.safetensors", {"b": b"12345"})
    safetensors(sharded / "two.safetensors", {"a": LONG}, {"format": "pt"})
    places = {"a": "two.safetensors", "b": "one.safetensors"}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    assert fingerprint_of_folder(base) == fingerprint_of_folder(sharded)


@pytest.mark.parametrize("tensors", [{"a": LONG, "b": b"12346"}, {"a": LONG, "c": b"12345"}, {"a": LONG}])
def test_another_model_has_another_fingerprint(base: Path, tmp_path: Path, tensors: dict[str, bytes]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    safetensors(other / "model.safetensors", tensors)
    assert fingerprint_of_folder(base) != fingerprint_of_folder(other)


def test_weights_that_are_no_safetensors_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match="safetensors") as caught:
        fingerprint_of_folder(tmp_path)
    assert "rlcore merge" in str(caught.value)


def test_the_base_is_found_and_checked(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, fingerprint_of_folder(base))
    assert is_adapter(folder)
    assert not is_adapter(base)
    assert base_of(folder) == base
    assert check_base(folder, base)
    assert local_folder(str(folder)) == folder


def test_another_base_is_refused_with_both_names(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, "0" * 32)
    with pytest.raises(UserError, match="another base") as caught:
        base_of(folder)
    for part in ("0" * 32, fingerprint_of_folder(base), str(folder), str(base)):
        assert part in str(caught.value)


def test_an_adapter_that_does_not_say_its_base_is_taken_as_it_is(base: Path, tmp_path: Path) -> None:
    assert not check_base(adapter(tmp_path / "adapter", base, None), base)


def test_the_base_of_a_run_that_was_moved_is_found_in_it(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = adapter(run / "checkpoints/000001/model", Path("/gone/model"), fingerprint_of_folder(base))
    with pytest.raises(UserError, match="not where it was") as caught:
        base_of(folder)
    assert "/gone/model" in str(caught.value)
    base.rename(run / "model")
    (run / "config.toml").touch()
    assert base_of(folder) == run / "model"


def test_a_base_of_the_hub_is_not_looked_for_before_it_is_needed(base: Path, tmp_path: Path) -> None:
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
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "adapter_config.json").write_text("{", encoding="utf-8"), "no adapter"),
        (lambda folder: (folder / "adapter_config.json").write_text('{"peft_type": "IA3"}'), "another kind"),
    ],
)
def test_what_is_no_adapter_is_refused(base: Path, tmp_path: Path, damage: Any, sentence: str) -> None:
    folder = adapter(tmp_path / "adapter", base, None)
    damage(folder)
    with pytest.raises(UserError, match=sentence):
        read_settings(folder)


def test_damaged_weights_of_an_adapter_are_refused(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, None)
    (folder / "adapter_model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(UserError, match="cannot be read"):
        check_base(folder, base)


def test_an_adapter_without_a_tokenizer_is_refused(base: Path, tmp_path: Path) -> None:
    folder = adapter(tmp_path / "adapter", base, fingerprint_of_folder(base))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"no tokenizer\.json") as caught:
        local_folder(str(folder))
    assert str(base) in str(caught.value)


def test_a_run_without_a_checkpoint_is_not_the_model_it_started_from(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").touch()
    base.rename(run / "model")
    with pytest.raises(UserError, match="no checkpoint yet") as caught:
        local_folder(str(run))
    assert f"--resume {run}; what it started from is {run / 'model'}" in str(caught.value)
    assert local_folder(str(run / "model")) == (run / "model").resolve()  # named, it is meant
