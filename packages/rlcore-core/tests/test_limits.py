"""Limits of configurations and of JSON files."""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from rlcore.cli.data import data
from rlcore.config.layers import Layer, file_layer, override_layers, values_layer
from rlcore.config.merge import merge_layers
from rlcore.config.messages import ProblemsError
from rlcore.config.origins import MAX_DEPTH, MAX_OVERRIDES, MAX_VALUES
from rlcore.config.schema import Table
from rlcore.config.tables import validate_options
from rlcore.errors import ConfigError, DataError, UserError
from rlcore.json_files import MAX_DEPTH as JSON_DEPTH
from rlcore.json_files import check_depth, json_lines, parse_json, read_json, to_line
from rlcore.rollouts.records import read_groups

Call = Callable[..., Any]
SECONDS = 10.0
"""Far more than a limit takes on a busy machine, far less than the input would take without."""


def layer_of(name: str, text: str) -> Layer:
    if name.endswith(".yaml"):
        pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'rlcore-core[yaml]'")
    return file_layer(Path(name), text=text)


def nested(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "a = " + "9" * 5000),
        ("a.toml", f"a = {10**24}"),
        ("a.toml", f"[b]\na = -{10**24}"),
        ("a.toml", f"a = 0x{'f' * 5000}"),
        ("a.toml", f"a = {nested(MAX_DEPTH + 1)}"),
        ("a.toml", f"[{'.'.join(['a'] * 2000)}]\nb = 1"),
        ("a.toml", "a = " + "[" * 50_000),
        ("a.toml", f"[reward.{'9' * 5000}]\nweight = 1"),
        ("a.yaml", "a: " + "9" * 5000),
        ("a.yaml", f"a: {10**24}"),
        ("a.yaml", f"a: {nested(MAX_DEPTH + 1)}"),
    ],
)
def test_unusable_value_of_a_file_is_rejected(name: str, text: str) -> None:
    with pytest.raises(ConfigError):
        layer_of(name, text)


@pytest.mark.parametrize(
    "override",
    [f"a={10**24}", f"a={nested(40)}", ".".join(["a"] * 5000) + "=1", f"reward.{'9' * 5000}.weight=1"],
)
def test_unusable_value_of_an_override_is_rejected(override: str) -> None:
    with pytest.raises(ConfigError):
        override_layers([override])


@pytest.mark.parametrize("key", ["model.path", "name", "summary", "runs"])
def test_nul_character_is_a_bad_value(rlcore: Call, key: str) -> None:
    done = rlcore("run", "-p", "toy", f'{key}="a\\u0000b"')
    assert done.status == 2
    assert f"bad value    {key}" in done.err


@pytest.mark.slow
def test_integer_with_too_many_digits_for_python_is_a_bad_value(rlcore: Call) -> None:
    done = rlcore("run", "-p", "toy", f"trainer.steps={'9' * 5000}")
    assert done.status == 2
    assert "trainer.steps" in done.err


def test_largest_integers_of_toml_are_read() -> None:
    tree = layer_of("a.toml", f"a = {2**63 - 1}\nb = {-(2**63)}").tree
    assert tree == {"a": 2**63 - 1, "b": -(2**63)}


def test_dates_are_text_as_in_yaml() -> None:
    assert layer_of("a.toml", "a = 1979-05-27\nb = [07:32:00]").tree == {"a": "1979-05-27", "b": ["07:32:00"]}


def test_file_with_too_many_values_is_rejected_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(ConfigError) as raised:
        layer_of("a.toml", "".join(f"key{n} = 1\n" for n in range(60_000)))
    assert raised.value.where == "a.toml"
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize("suffix", ["toml", "yaml"])
def test_file_of_many_bytes_is_rejected_unread(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    with path.open("wb") as file:
        file.truncate(400_000_000)
    started = time.monotonic()
    with pytest.raises(ConfigError) as raised:
        file_layer(path)
    assert raised.value.where == str(path)
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize("text", ["a: [1]\n" * 60_000, f"a: [{'1, ' * 300_000}1]"], ids=["lines", "values"])
def test_yaml_of_many_lines_or_values_is_rejected_before_it_is_read(text: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'rlcore-core[yaml]'")
    file = tmp_path / "large.yaml"
    file.write_text(text, encoding="utf-8")
    start = time.process_time()
    with pytest.raises(ConfigError, match="too large"):
        file_layer(file)
    assert time.process_time() - start < SECONDS / 2


@pytest.mark.parametrize("read", [read_json, file_layer, lambda path: list(read_groups(path))])
def test_a_pipe_is_rejected_without_reading_it(read: Call, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe.toml")
    with pytest.raises((OSError, UserError), match="pipe"):
        read(pipe)


def test_more_rows_than_there_can_be_are_rejected(rlcore: Call) -> None:
    done = rlcore("data", "show", "toy", "-n", str(10**24))
    assert (done.status, "2147483647" in done.err) == (2, True), done.err


def test_too_many_overrides_are_rejected() -> None:
    with pytest.raises(ConfigError):
        override_layers(["seed=1"] * (MAX_OVERRIDES + 1))


def test_many_unknown_keys_are_counted_and_some_are_shown(rlcore: Call) -> None:
    Path("many.toml").write_text("".join(f"key{n} = 1\n" for n in range(MAX_VALUES - 1)), encoding="utf-8")
    started = time.monotonic()
    done = rlcore("run", "-p", "toy", "-c", "many.toml")
    assert done.status == 2
    assert f"{MAX_VALUES - 1:,} problems" in done.err
    assert done.err.count("unknown key") <= 60
    assert time.monotonic() - started < SECONDS


def test_merging_many_values_takes_linear_time() -> None:
    layers = [layer_of("a.toml", "[a]\n" + "".join(f"key{n} = 1\n" for n in range(MAX_VALUES - 2))) for _ in range(2)]
    started = time.monotonic()
    merged = merge_layers(layers[:1])
    assert merged.origin(("a", "key7")) == "a.toml:9"
    assert time.monotonic() - started < SECONDS


keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
trees = st.dictionaries(
    keys,
    st.recursive(
        st.one_of(st.integers(), st.booleans(), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=10,
    ),
    max_size=4,
)


@given(trees)
def test_any_tree_is_read_or_rejected(tree: dict[str, Any]) -> None:
    text = json.dumps(tree, ensure_ascii=False)  # JSON is YAML
    try:
        layer = layer_of("a.yaml", text)
    except ConfigError:
        return
    assert json.loads(json.dumps(layer.tree)) == layer.tree


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_a_value_error(data: bytes) -> None:
    try:
        value = parse_json(data)
    except ValueError:
        return
    assert parse_json(to_line(value).encode()) == value or value != value or isinstance(value, (list, dict, float))


@pytest.mark.parametrize("depth", [JSON_DEPTH + 1, 900, 5000, 100_000])
def test_json_that_is_nested_too_deeply_is_a_value_error(depth: int) -> None:
    for text in (nested(depth), '{"a":' * depth + "1" + "}" * depth):
        with pytest.raises(ValueError, match="nested"):
            parse_json(text)
    check_depth(parse_json(nested(JSON_DEPTH)))


def test_long_line_meets_the_limit() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(json_lines(io.BytesIO(b"1\n" + b"2" * 11 + b"\n"), limit=10))
    assert [number for number, _ in json_lines(io.BytesIO(b"\xef\xbb\xbf1\n\n 2"), limit=10)] == [1, 3]


def test_large_file_meets_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b" " * 100)
    with pytest.raises(ValueError, match="limit"):
        read_json(tmp_path / "a.json", limit=99)


def test_lone_surrogates_are_written_as_escapes() -> None:
    assert to_line({"a": "é"}) == '{"a": "é"}'
    assert parse_json(to_line({"a": "\ud800"})) == {"a": "\ud800"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long.jsonl", "long.jsonl.gz"])
def test_file_of_rows_with_a_line_of_280_megabytes_is_rejected(rlcore: Call, name: str) -> None:
    with gzip.open(name, "wb", compresslevel=1) if name.endswith(".gz") else Path(name).open("wb") as file:
        for _ in range(7):
            file.write(bytes(40_000_000))
    started = time.monotonic()
    done = rlcore("data", "show", name)
    assert done.status == 2
    assert "  fix " in done.err
    assert time.monotonic() - started < 3 * SECONDS


ROWS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "name", "arguments", "function"]), inner)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    rows=st.lists(st.fixed_dictionaries({"messages": ROWS}, optional={"task": ROWS, "trajectories": ROWS}), max_size=3)
)
def test_any_row_is_shown(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        done = CliRunner().invoke(data, ["show", str(path)])
    assert done.exception is None or isinstance(done.exception, (DataError, SystemExit)), done.exc_info


class Numbers(Table):
    """Fields that need numbers."""

    whole: Annotated[int, Field(ge=1)] | None = None
    either: Annotated[int, Field(ge=1)] | Annotated[str, Field(min_length=3)] = 1
    several: list[float] = []
    pair: tuple[Annotated[float, Field(ge=0)], float] = (0.0, 1.0)
    flag: bool | int = False


@pytest.mark.parametrize("key", ["whole", "either", "several.0", "pair.1"])
def test_boolean_is_no_number(key: str) -> None:
    name, _, index = key.partition(".")
    tree = {name: [0.5, True][:: -1 if index == "0" else 1] if index else True}
    with pytest.raises(ProblemsError) as raised:
        validate_options(Numbers, [values_layer(tree, "here")], subject="the numbers")
    (problem,) = raised.value.problems
    assert (problem.path, problem.origin) == (key, "here")
    assert validate_options(Numbers, [values_layer({"flag": True}, "here")], subject="the numbers") == Numbers(
        flag=True
    )
