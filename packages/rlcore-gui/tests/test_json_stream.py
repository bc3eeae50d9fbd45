"""Large JSON files, item by item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.errors import DataError
from rlcore_gui import json_stream
from rlcore_gui.json_stream import items

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["}],[{", '"']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "data.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return path


@given(st.lists(PLAIN, max_size=8), st.sampled_from([None, 1, "\t"]), st.booleans(), st.integers(1, 60))
def test_items_of_a_list_equal_those_of_json(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: Any, ascii_only: bool, block: int
) -> None:
    path = written(tmp_path_factory.mktemp("a"), json.dumps(values, indent=indent, ensure_ascii=ascii_only))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BLOCK", block)
        assert [value for _, value in items(path)] == values


@given(st.dictionaries(st.text(), st.lists(PLAIN, max_size=4), max_size=4), st.sampled_from([None, 2]))
def test_items_of_an_object_have_the_key_of_their_list(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, list[Any]], indent: int | None
) -> None:
    path = written(tmp_path_factory.mktemp("a"), json.dumps(values, indent=indent))
    assert list(items(path)) == [(key, item) for key, listed in values.items() for item in listed]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (",\n", ":")])
@pytest.mark.parametrize("block", [40, 300, 1 << 20])
def test_separators_inside_of_items_divide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separators: tuple[str, str], block: int
) -> None:
    values = [[[n], [n, "],["], {"a": [{}, {}], "b": "}, {"}, [[n], [n]]] for n in range(40)]
    path = written(tmp_path, json.dumps(values, separators=separators))
    monkeypatch.setattr(json_stream, "BLOCK", block)
    assert [value for _, value in items(path)] == values


def test_what_the_fast_parser_refuses_is_read_by_the_slow_one(tmp_path: Path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbf[[{"a": "\\ud800"}], [{"b": NaN}]]')
    (_, first), (_, second) = items(path)
    assert first == [{"a": "\ud800"}]
    assert second[0]["b"] != second[0]["b"]


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
    ],
)
def test_damaged_files_are_reported_with_their_line(tmp_path: Path, text: str | bytes, line: int) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DataError) as error:
        list(items(path))
    assert f"{path}, line {line}," in str(error.value)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        list(items(tmp_path / "none.json"))


def test_progress_reaches_the_size_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([[number] for number in range(1000)]))
    seen: list[int] = []
    assert len(list(items(path, read=seen.append))) == 1000
    assert seen[-1] == path.stat().st_size
