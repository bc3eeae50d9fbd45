"""Pickles are read as data: names are never imported, and names off the allowlist are rejected."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore.errors import UserError
from rlcore_merge import merge, pickles


class Call:
    """Calls a function when it is unpickled, as an attack does."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model_world_size_1_rank_0.pt"])
def test_malicious_file_raises_with_the_imported_name(tmp_path: Path, name: str) -> None:
    source, trap = tmp_path / "in", tmp_path / "trap"
    source.mkdir()
    torch.save({"weight": torch.ones(2), "more": Call(os.mkdir, str(trap))}, source / name)
    with pytest.raises(pickles.ForbiddenName) as caught:
        merge(source, tmp_path / "out")
    assert str(caught.value).splitlines() == [
        "the checkpoint was rejected: its pickle contains more than data",
        "  found  it imports posix.mkdir",
        f"  from   {source / name}",
        "  fix    do not trust this file; if you wrote it yourself, save only the state dict: "
        "torch.save(model.state_dict(), FILE)",
    ]
    assert not trap.exists()
    assert not (tmp_path / "out").exists()


def test_malicious_metadata_of_a_distributed_checkpoint_raise(tmp_path: Path) -> None:
    source, trap = tmp_path / "in", tmp_path / "trap"
    source.mkdir()
    (source / ".metadata").write_bytes(pickle.dumps(Call(os.mkdir, str(trap))))
    with pytest.raises(pickles.ForbiddenName) as caught:
        merge(source, tmp_path / "out")
    assert caught.value.where == str(source / ".metadata")
    assert not trap.exists()


@pytest.mark.parametrize(
    "value", [Call(eval, "1"), Call(getattr, "text", "format"), Call(pickle.loads, b""), os.system]
)
def test_builtins_and_attributes_of_modules_raise(value: Any) -> None:
    with pytest.raises(pickles.ForbiddenName):
        pickles.load(io.BytesIO(pickle.dumps(value)), "here")


def test_damaged_pickle_raises() -> None:
    with pytest.raises(UserError) as caught:
        pickles.load(io.BytesIO(b"\x80\x02}q\x00(X"), "here")
    assert "damaged" in str(caught.value.found)
    assert caught.value.where == "here"


def test_file_that_is_not_an_archive_raises(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"no archive" * 100)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.where == str(tmp_path / "pytorch_model.bin")
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert "before 1.6" in str(caught.value.found)


@pytest.mark.parametrize("at", [0, 26, 30], ids=["signature", "name-length", "name"])
def test_damaged_header_of_a_record_raises(tmp_path: Path, at: int) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        (record,) = [info for info in archive.infolist() if info.filename.endswith("/data/0")]
    with path.open("r+b") as file:
        file.seek(record.header_offset + at)
        file.write(b"\0\0")
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert record.filename in str(caught.value.found)
    assert caught.value.where == str(path)
    assert not (tmp_path / "out").exists()
