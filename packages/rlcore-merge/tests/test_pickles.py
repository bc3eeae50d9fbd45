"""Pickles are data: what they name is never imported, and what no checkpoint holds is refused."""

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


class Runs:
    """Runs a command when it is unpickled, as an attack does."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model_world_size_1_rank_0.pt"])
def test_a_malicious_file_is_refused_by_the_name_it_asks_for(tmp_path: Path, name: str) -> None:
    source, trap = tmp_path / "in", tmp_path / "trap"
    source.mkdir()
    torch.save({"weight": torch.ones(2), "more": Runs(os.mkdir, str(trap))}, source / name)
    with pytest.raises(UserError, match="refused") as caught:
        merge(source, tmp_path / "out")
    assert "posix.mkdir" in str(caught.value)
    assert name in str(caught.value)
    assert not trap.exists()
    assert not (tmp_path / "out").exists()


def test_malicious_metadata_of_a_distributed_checkpoint_are_refused(tmp_path: Path) -> None:
    source, trap = tmp_path / "in", tmp_path / "trap"
    source.mkdir()
    (source / ".metadata").write_bytes(pickle.dumps(Runs(os.mkdir, str(trap))))
    with pytest.raises(UserError, match="refused"):
        merge(source, tmp_path / "out")
    assert not trap.exists()


@pytest.mark.parametrize(
    "value", [Runs(eval, "1"), Runs(getattr, "text", "format"), Runs(pickle.loads, b""), os.system]
)
def test_builtins_and_attributes_of_modules_are_refused(value: Any) -> None:
    with pytest.raises(pickles.ForbiddenName):
        pickles.load(io.BytesIO(pickle.dumps(value)), "here")


def test_a_damaged_pickle_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        pickles.load(io.BytesIO(b"\x80\x02}q\x00(X"), "here")


def test_a_file_without_an_archive_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"no archive" * 100)
    with pytest.raises(UserError, match="cannot be read"):
        merge(tmp_path, tmp_path / "out")
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert "before 1.6" in str(caught.value)


@pytest.mark.parametrize("at", [0, 26, 30], ids=["signature", "length-of-the-name", "name"])
def test_a_record_whose_own_header_is_damaged_is_refused(tmp_path: Path, at: int) -> None:
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.arange(4.0)}, path)
    with zipfile.ZipFile(path) as archive:
        (record,) = [info for info in archive.infolist() if info.filename.endswith("/data/0")]
    with path.open("r+b") as file:
        file.seek(record.header_offset + at)
        file.write(b"\0\0")
    with pytest.raises(UserError, match="is damaged") as caught:
        merge(tmp_path, tmp_path / "out")
    assert f"its record {record.filename} does not begin" in str(caught.value)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "out").exists()
