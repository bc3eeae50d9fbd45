"""Large JSON files, item by item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.errors import DataError
from rlcore_gui.prepare import json_stream
from rlcore_gui.prepare.json_stream import items

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["}],[{", '"']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "data.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return path


@given(
    st.lists(PLAIN, max_size=8),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
    st.integers(1, 60),
    st.sampled_from([2, 20, 1 << 20]),
)
def test_items_of_a_list_equal_those_of_json(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: Any, ascii_only: bool, block: int, long: int
) -> None:
    path = written(tmp_path_factory.mktemp("a"), json.dumps(values, indent=indent, ensure_ascii=ascii_only))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BLOCK", block)
        patch.setattr(json_stream, "LONG_ITEM", long)
        assert [value for _, value in items(path)] == values


@given(st.dictionaries(st.text(), st.lists(PLAIN, max_size=4), max_size=4), st.sampled_from([None, 2]))
def test_items_of_an_object_have_the_key_of_their_list(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, list[Any]], indent: int | None
) -> None:
    path = written(tmp_path_factory.mktemp("a"), json.dumps(values, indent=indent))
    assert list(items(path)) == [(key, item) for key, listed in values.items() for item in listed]


def test_byte_order_mark_is_ignored_and_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf[[{"a": "\\ud800"}], 2]')
    assert list(items(path)) == [(None, [{"a": "?"}]), (None, 2)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("3", 1),
        ('{"general": 3}', 1),
        ('{"general"', 1),
        ("[[1]\n,\n[2", 3),
        ("[[1]\n[2]]", 2),
        ("[[1]]\n\n[", 3),
        ("[" + "[" * 2000, 1),
        ("[1, ]", 1),
        (b"[\xff]", 1),
        ('[1,\n"a\\q"]', 2),
        ("[1,\n\nNaN]", 3),
        ("[1,\n" + "9" * 30 + "]", 2),
        ("[1,\n1e999]", 2),
        ('{"general": [],\n"single": {}}', 2),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_damaged_files_are_reported_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, line: int, block: int
) -> None:
    monkeypatch.setattr(json_stream, "BLOCK", block)
    path = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        list(items(path))
    assert f"{path}, line {line}," in str(error.value)


def test_errors_show_the_place_and_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([[0] * 60_000, 1])[:-1] + ", x]")
    with pytest.raises(DataError) as error:
        list(items(path))
    assert "'x]' after ' 0, 0, 0, 0, 0], 1, ': lexical error" in str(error.value)
    assert f"line 1, byte {path.stat().st_size - 2:,}" in str(error.value)


def test_large_items_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "BLOCK", 10)
    monkeypatch.setattr(json_stream, "LARGEST_ITEM", 100)
    assert len(list(items(written(tmp_path, json.dumps([[1] * 8] * 50))))) == 50
    for item in ([1] * 200, "x" * 200):
        with pytest.raises(DataError, match="items of at most 100 bytes"):
            list(items(written(tmp_path, json.dumps([[1], item, [2]]))))


def test_a_number_beyond_64_bits_is_shown(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"18446744073709551616.*integer overflow"):
        list(items(written(tmp_path, '[["a", 18446744073709551616]]')))


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list(items(tmp_path / "none.json"))


def test_progress_reaches_the_size_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([[number] for number in range(1000)]))
    seen: list[int] = []
    assert len(list(items(path, read=seen.append))) == 1000
    assert sum(seen) == path.stat().st_size
