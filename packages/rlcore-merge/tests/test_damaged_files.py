"""Damaged torch files: the result equals that of torch, or an error names the file. torch does not verify checksums."""

from __future__ import annotations

import hashlib
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch_mutations as mutations
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore_merge import merge
from rlcore_merge.sources.torch_files import TorchFile
from rlcore_merge.tensors import MappedFile
from safetensors.torch import load_file

NAME = "pytorch_model.bin"


class View:
    """A tensor of any offset, shape and strides, as a hostile writer saves it."""

    def __init__(self, base: torch.Tensor, offset: Any, shape: Any, strides: Any) -> None:
        self.arguments = (base._typed_storage(), offset, shape, strides, False, OrderedDict())

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return torch._utils._rebuild_tensor_v2, self.arguments


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors as read by rlcore_merge."""
    found = {}
    for name, tensor in TorchFile(MappedFile(path)).tensors().items():
        data = bytearray(tensor.read(0, tensor.array().size).tobytes())
        dtype = getattr(torch, tensor.kind.torch_name)
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        found[name] = flat.reshape(tensor.shape)
    return found


NUMBER = st.integers(-3, 9)


@settings(max_examples=300, deadline=None)
@given(offset=st.integers(-2, 14), shape=st.lists(NUMBER, max_size=4), strides=st.lists(NUMBER, max_size=4))
def test_a_view_is_accepted_exactly_if_torch_accepts_it_and_it_fits_its_storage(
    tmp_path_factory: pytest.TempPathFactory, offset: int, shape: list[int], strides: list[int]
) -> None:
    path = tmp_path_factory.mktemp("view") / NAME
    before, base, after = torch.full((64,), -1.0), torch.arange(12.0), torch.full((64,), -2.0)
    torch.save({"before": before, "view": View(base, offset, tuple(shape), tuple(strides)), "after": after}, path)
    try:
        expected = torch.as_strided(base, shape, strides, offset) if len(shape) == len(strides) else None
    except RuntimeError:
        expected = None
    if expected is None or expected.numel() > base.numel():
        with pytest.raises(UserError) as caught:
            read(path)
        assert caught.value.where == str(path)
    else:
        assert torch.equal(read(path)["view"], expected)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (3,), (-1,)),
        (-4, (2,), (1,)),
        (11, (2,), (1,)),
        (0, (-2, -2), (1, 1)),
        (0, (2, 2), (1,)),
        (0, (2,), (1, 1)),
        (0, (2,), (2**61,)),
        (2**62, (1,), (1,)),
        (2**64, (1,), (1,)),
        (0, (2**40, 2**40), (0, 0)),
        (0.0, (2,), (1,)),
        (0, "12", (1, 1)),
        (0, (1,) * 100, (1,) * 100),
    ],
)
def test_a_view_outside_of_its_storage_raises(tmp_path: Path, offset: Any, shape: Any, strides: Any) -> None:
    torch.save({"view": View(torch.arange(12.0), offset, shape, strides)}, tmp_path / NAME)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.where == str(tmp_path / NAME)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("seed", range(12))
def test_every_flipped_byte_of_a_record_raises(tmp_path: Path, seed: int) -> None:
    """Records of several chunks, views of parts of a storage, and bytes that no tensor uses."""
    path, generator = tmp_path / NAME, torch.Generator().manual_seed(seed)
    whole = torch.randn(1500, 1000, generator=generator)
    state = {"whole": whole, "part": torch.randn(64, generator=generator)[:3], "transposed": whole.t()}
    torch.save(state, path)
    with zipfile.ZipFile(path) as archive:
        info = archive.infolist()[seed % len(archive.infolist())]
    start = info.header_offset + 30 + sum(struct.unpack("<HH", path.read_bytes()[info.header_offset + 26 :][:4]))
    at = start + Random(seed).randrange(info.file_size)
    with path.open("r+b") as file:
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([old ^ (1 << seed % 8)]))
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.where == str(path)
    assert info.filename in str(caught.value.found)
    assert not (tmp_path / "out").exists()


def test_a_file_without_checksums_is_merged_with_a_note(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(5.0)}, tmp_path / NAME)
    finally:
        torch.serialization.set_crc32_options(True)
    merged = merge(tmp_path, tmp_path / "out")
    assert [note for note in merged.notes if NAME in note and "without checksums" in note]
    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["a"], torch.arange(5.0))
    torch.save({"a": torch.arange(5.0)}, tmp_path / NAME)
    assert not [note for note in merge(tmp_path, tmp_path / "again").notes if "without checksums" in note]


class Changed:
    """Builds an object by a call and then sets its state, as a pickle can do with everything that it names."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], state: Any) -> None:
        self.reduced = (function, arguments, state)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        return self.reduced


def build(name: bytes, state: bytes) -> bytes:
    """A pickle that sets the state of an object by its name."""
    module, _, attribute = name.rpartition(b".")
    return b"\x80\x02c" + module + b"\n" + attribute + b"\n" + state + b"b."


@pytest.mark.parametrize("name", [b"torch.float32", b"torch._utils._rebuild_tensor_v2", b"torch.FloatStorage"])
@pytest.mark.parametrize("state", [b"(K\x01K\x02l", b"}X\x04\x00\x00\x00nameK\x01s", b"N}X\x04\x00\x00\x00callNs\x86"])
def test_a_pickle_cannot_change_what_it_names(tmp_path: Path, name: bytes, state: bytes) -> None:
    good = tmp_path / "good"
    good.mkdir()
    torch.save({"a": torch.arange(3.0)}, good / NAME)
    parts = mutations.records((good / NAME).read_bytes())
    (tmp_path / NAME).write_bytes(
        mutations.archive({key: build(name, state) if key.endswith("data.pkl") else v for key, v in parts.items()})
    )
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.where == str(tmp_path / NAME)
    merge(good, tmp_path / "fine")
    assert torch.equal(load_file(tmp_path / "fine" / "model.safetensors")["a"], torch.arange(3.0))


def test_state_of_a_tensor_cannot_be_changed(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    view = (base._typed_storage(), 0, (2,), (1,), False, OrderedDict())
    torch.save({"a": Changed(torch._utils._rebuild_tensor_v2, view, [None, None, -4, (2,), (1,)])}, tmp_path / NAME)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.where == str(tmp_path / NAME)


@pytest.mark.parametrize("tensor", [torch.ones(2, dtype=torch.complex64).conj(), torch.ones(2).to(torch.complex64)])
def test_a_pending_conjugation_raises(tmp_path: Path, tensor: torch.Tensor) -> None:
    torch.save({"a": tensor}, tmp_path / NAME)
    if tensor.is_conj():
        with pytest.raises(UserError) as caught:
            merge(tmp_path, tmp_path / "out")
        assert caught.value.where == str(tmp_path / NAME)
    else:
        merge(tmp_path, tmp_path / "out")


@pytest.mark.parametrize("name", [5, "__metadata__", "", "\ud800"])
def test_a_name_that_cannot_be_written_raises(tmp_path: Path, name: Any) -> None:
    torch.save({name: torch.ones(2)}, tmp_path / NAME)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert caught.value.where == str(tmp_path)


def test_nested_tensors_are_not_dropped(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2), "epoch": 3, "more": {"b": torch.ones(3)}}, tmp_path / NAME)
    with pytest.raises(UserError) as caught:
        merge(tmp_path, tmp_path / "out")
    assert "more" in str(caught.value.found)
    torch.save({"a": torch.ones(2), "epoch": 3, "more": {"b": [1, None]}}, tmp_path / NAME)
    merge(tmp_path, tmp_path / "out")


def test_a_pickle_that_asks_for_all_memory_raises() -> None:
    from rlcore_merge.sources import pickles

    huge = b"\x80\x02Nr" + struct.pack("<I", 2**31 - 1) + b"."
    assert pickle.loads(b"\x80\x02Nr\x00\x01\x00\x00.") is None
    with pytest.raises(UserError) as caught:
        pickles.load(huge, "here")
    assert caught.value.where == "here"
    assert "2,147,483,647" in str(caught.value.found)


def assert_like_torch(folder: Path, seeds: range) -> None:
    """Each damaged file is rejected, or has the tensors that torch reads, or has those of the undamaged file."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(6, 4, generator=generator)
    state = OrderedDict(
        {
            "layer.weight": weight,
            "layer.bias": weight[2],
            "transposed": weight.t(),
            "half": weight.bfloat16(),
            "eight": weight.to(torch.float8_e4m3fn),
            "ids": torch.arange(5),
            "empty": torch.zeros(0, 3),
            "scalar": torch.tensor(2.5),
            "flag": torch.tensor([True, False]),
            "parameter": torch.nn.Parameter(weight[:2]),
        }
    )
    torch.save(state, folder / "original")
    original = (folder / "original").read_bytes()
    paths = [folder / str(seed) for seed in seeds]
    for path, seed in zip(paths, seeds, strict=True):
        path.write_bytes(mutations.mutate(original, seed))
    accepted = 0
    (undamaged,) = mutations.read_by_torch([folder / "original"])
    for path, by_torch in zip(paths, mutations.read_by_torch(paths), strict=True):
        try:
            file = TorchFile(MappedFile(path)).tensors()
        except UserError:
            continue
        accepted += 1
        # torch rejects more than damaged values, for example an archive with a second disk.
        expected = undamaged if by_torch is None else by_torch
        assert expected is not None
        assert {str(name) for name in file} == expected.keys(), path
        for name, tensor in file.items():
            dtype, shape, digest = expected[str(name)]
            assert (f"torch.{tensor.kind.torch_name}", list(tensor.shape)) == (dtype, shape), path
            if digest != "large":
                content = tensor.read(0, tensor.array().size).tobytes()
                assert hashlib.sha256(content).hexdigest() == digest, (path, name)
    assert accepted > len(seeds) // 50  # not everything is rejected


@pytest.mark.long
def test_damaged_files_are_read_as_by_torch(tmp_path: Path) -> None:
    assert_like_torch(tmp_path, range(200))


@pytest.mark.long
def test_many_damaged_files_are_read_as_by_torch(tmp_path: Path) -> None:
    assert_like_torch(tmp_path, range(1000, 5000))
