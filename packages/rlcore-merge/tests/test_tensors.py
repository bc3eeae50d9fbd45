"""Ranges of assembled tensors, compared with numpy; boxes of placements, compared with torch.chunk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore.errors import UserError
from rlcore_merge.sources.sharding import Assembled, Mesh, Piece, Placement, box, chunk, tile
from rlcore_merge.tensors import KINDS, MappedFile, Stored, ranges


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> MappedFile:
    path = tmp_path_factory.mktemp("numbers") / "file"
    path.write_bytes(np.arange(4096, dtype=np.float32).tobytes())
    return MappedFile(path)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
    parts=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    numbers=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
)
def test_any_range_of_any_grid_of_blocks_equals_numpy(
    file: MappedFile, shape: tuple[int, ...], parts: list[int], numbers: tuple[int, int]
) -> None:
    whole = np.empty(shape, np.float32)
    pieces, at = [], 0
    for place in np.ndindex(*parts[: len(shape)]):
        cuts = [chunk(length, count, index) for length, count, index in zip(shape, parts, place, strict=False)]
        lengths = tuple(end - begin for begin, end in cuts)
        stored = Stored(file, at * 4, KINDS["F32"], lengths)
        whole[tuple(slice(begin, end) for begin, end in cuts)] = stored.array()
        pieces.append(Piece.of(tuple(begin for begin, _ in cuts), stored))
        at += stored.array().size
    tensor = Assembled(KINDS["F32"], shape, [piece for piece in pieces if 0 not in piece.shape])
    start = numbers[0] % whole.size
    count = numbers[1] % (whole.size - start) + 1
    assert np.array_equal(tensor.read(start, count), whole.reshape(-1)[start : start + count])


@settings(max_examples=300, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    data=st.data(),
)
def test_boxes_tile_exactly_if_they_cover_each_element_once(shape: tuple[int, ...], data: st.DataObject) -> None:
    number = st.integers(-1, 4)
    side = st.tuples(*(number for _ in shape))
    boxes = data.draw(st.lists(st.tuples(side, side), max_size=4))
    if data.draw(st.booleans()) and shape:  # a split, which random boxes rarely are
        cut = data.draw(st.integers(0, shape[0]))
        boxes = [((0,) * len(shape), (cut, *shape[1:])), ((cut, *(0 for _ in shape[1:])), (shape[0] - cut, *shape[1:]))]
        boxes += data.draw(st.lists(st.sampled_from(boxes), max_size=1))
    counts = np.zeros([12] * len(shape), int)
    valid = all(number >= 0 for box in boxes for part in box for number in part)
    for offsets, lengths in boxes if valid else ():
        counts[tuple(slice(at, at + length) for at, length in zip(offsets, lengths, strict=True))] += 1
    expected = np.zeros_like(counts)
    expected[tuple(slice(0, length) for length in shape)] = 1
    assert tile(shape, boxes) == (valid and (bool(np.array_equal(counts, expected)) or 0 in shape))


def test_overlapping_parts_that_leave_a_gap_do_not_tile() -> None:
    assert not tile((4, 2), [((0, 0), (2, 2)), ((1, 0), (2, 2))])
    assert not tile((4,), [((0,), (2,)), ((3,), (2,))])
    assert tile((), [((), ())])
    assert not tile((), [((), ()), ((), ())])
    assert not tile((2,), [])


def test_strided_tensor_is_read_in_row_major_order(file: MappedFile) -> None:
    expected = torch.arange(4096.0)[5 : 5 + 12].reshape(3, 4).T
    tensor = Stored(file, 20, KINDS["F32"], (4, 3), (1, 4))
    assert np.array_equal(tensor.read(0, 12), expected.reshape(-1).numpy())
    assert np.array_equal(tensor.read(4, 5), expected.reshape(-1).numpy()[4:9])


def test_ranges_cover_a_tensor_once_and_end_at_rows(file: MappedFile) -> None:
    tensor = Stored(file, 0, KINDS["F32"], (10, 30))
    found = list(ranges(tensor, 100))
    assert found == [(0, 90), (90, 90), (180, 90), (270, 30)]
    assert list(ranges(Stored(file, 0, KINDS["F32"], ()), 100)) == [(0, 1)]
    assert list(ranges(Stored(file, 0, KINDS["F32"], (0, 3)), 100)) == []


@pytest.mark.parametrize("length", [1, 3, 7, 8, 13])
def test_strided_splits_are_nested_in_reverse(length: int) -> None:
    whole = torch.arange(length)
    placements = [Placement(0, split_factor=2), Placement(0)]
    for outer in range(3):
        for inner in range(2):
            offsets, lengths = box((length,), placements, Mesh((3, 2), (outer, inner)))
            halves = [*whole.chunk(2), whole[:0], whole[:0]][:2]
            thirds = [*halves[inner].chunk(3), whole[:0], whole[:0], whole[:0]][:3]
            assert torch.equal(whole[offsets[0] : offsets[0] + lengths[0]], thirds[outer])


def test_strided_split_that_fits_no_mesh_raises() -> None:
    with pytest.raises(ValueError, match="factor 5"):
        box((8,), [Placement(0, split_factor=5), Placement(0)], Mesh((2, 2), (0, 0)))


def test_message_of_a_truncated_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345678")
    with pytest.raises(UserError) as caught:
        Stored(MappedFile(tmp_path / "file"), 0, KINDS["F32"], (3,))
    assert str(caught.value).splitlines() == [
        "a checkpoint file is truncated",
        "  found  8 bytes, but a tensor ends at 12",
        f"  from   {tmp_path / 'file'}",
        "  fix    copy or save the file again",
    ]
