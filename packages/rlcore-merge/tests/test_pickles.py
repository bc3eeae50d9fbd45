"""Pickles are read as data: names are never imported, and names off the allowlist are rejected."""

from __future__ import annotations

import os
import pickle
import pickletools
import tracemalloc
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore_merge import merge
from rlcore_merge.sources import pickles


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
        pickles.load(pickle.dumps(value), "here")


def test_damaged_pickle_raises() -> None:
    with pytest.raises(UserError) as caught:
        pickles.load(b"\x80\x02}q\x00(X", "here")
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


def test_tensor_that_is_larger_than_its_storage_raises(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(16).as_strided((1_000_000, 10_000), (0, 0))}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert "10,000,000,000 elements in a storage of 16" in str(caught.value.found)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_operations_of_a_pickle_are_bounded(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    content = pickle.dumps({"a": [1] * 1000, "text": "x" * 300, "more": [2**70, 1.5, None]}, protocol)
    count = sum(1 for _ in pickletools.genops(content))
    monkeypatch.setattr("rlcore_merge.sources.pickle_operations.MOST_OPERATIONS", count)
    pickles.load(content, "x.pt")
    monkeypatch.setattr("rlcore_merge.sources.pickle_operations.MOST_OPERATIONS", count - 1)
    with pytest.raises(UserError) as caught:
        pickles.load(content, "x.pt")
    assert f"more than {count - 1:,} operations" in str(caught.value.found)


def repeated(name: str, elements: int, times: int, *, single: bool) -> bytes:
    """A pickle that calls a function ``times`` times with one sequence of integers, as one argument or as many."""
    function = b"c" + b"\n".join(name.encode().rsplit(b".", 1)) + b"\nq\x00"
    values = b"".join(b"J" + number.to_bytes(4, "little") for number in range(elements))
    sequence = b"(" + values + (b"l" if single else b"t") + b"q\x01"
    return b"\x80\x02" + function + sequence + b"(" + (b"h\x00h\x01" + b"\x85" * single + b"R") * times + b"l."


@pytest.mark.parametrize("name", ["builtins.list", "builtins.tuple", "builtins.set", "__builtin__.set", "torch.device"])
@given(elements=st.integers(65, 2000), times=st.integers(100, 2000))
@settings(max_examples=20, deadline=None)
def test_pickle_cannot_use_memory_by_repeated_copies(name: str, elements: int, times: int) -> None:
    content = repeated(name, elements, times, single=name != "torch.device")
    tracemalloc.start()
    try:
        with pytest.raises(UserError):
            pickles.load(content, "x.pt")
        assert tracemalloc.get_traced_memory()[1] < 300 * len(content)  # a set has up to 110 bytes per element
    finally:
        tracemalloc.stop()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_containers_are_read_in_every_protocol(value: Any) -> None:
    holder = {"a": value, "ordered": OrderedDict([("b", value)]), "set": {1, 2}, "tuple": (value, value)}
    for protocol in range(2, 6):
        assert pickles.load(pickle.dumps(holder, protocol), "x.pt") == holder
