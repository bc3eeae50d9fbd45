"""Merging of files and overrides, and the origin of each value."""

from __future__ import annotations

import math
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore.config.layers import file_layer, override_layers, parse_value, values_layer
from rlcore.config.merge import merge_layers
from rlcore.config.messages import ProblemsError
from rlcore.config.origins import parse_yaml, toml_lines
from rlcore.config.write import toml_text
from rlcore.errors import ConfigError, NotInstalledError

RECIPE = '''# a comment with [brackets] and a = 1
summary = """
two lines
x = 3
"""
a.b = 1

[trainer]   # [[not.a.table]]
steps = 60
betas = [
  0.9,  # a = 2
  0.99,
]
kl = { estimator = "k3", coefficient = 0.1 }

[[reward]]
id = "x"
[reward.options]
"odd key" = "a # b"

[[reward]]
id = 'y='
weight = 2
'''


def test_toml_lines_maps_keys_to_line_numbers() -> None:
    lines = toml_lines(RECIPE)
    expected = {
        ("summary",): 2,
        ("a",): 6,
        ("a", "b"): 6,
        ("trainer",): 8,
        ("trainer", "steps"): 9,
        ("trainer", "betas"): 10,
        ("trainer", "kl"): 14,
        ("reward", "0"): 16,
        ("reward", "0", "id"): 17,
        ("reward", "0", "options"): 18,
        ("reward", "0", "options", "odd key"): 19,
        ("reward", "1"): 21,
        ("reward", "1", "id"): 22,
        ("reward", "1", "weight"): 23,
    }
    assert lines == expected


def test_inline_table_values_have_the_line_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    merged = merge_layers([file_layer(path, name="recipe.toml")])
    assert merged.origin(("trainer", "kl", "coefficient")) == "recipe.toml:14"
    assert merged.tree == tomllib.loads(RECIPE)


def test_later_layers_win_and_keep_their_origin(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[trainer]\nsteps = 1\nkl = {a = 1, b = 2}\n")
    (tmp_path / "b.toml").write_text("\n[trainer]\nkl.b = 3\n")
    layers = [file_layer(tmp_path / "a.toml", name="a"), file_layer(tmp_path / "b.toml", name="b")]
    merged = merge_layers([*layers, *override_layers(["trainer.steps=7"])])
    assert merged.tree == {"trainer": {"steps": 7, "kl": {"a": 1, "b": 3}}}
    assert merged.origin(("trainer", "steps")) == "command line: trainer.steps=7"
    assert merged.origin(("trainer", "kl", "a")) == "a:3"
    assert merged.origin(("trainer", "kl", "b")) == "b:3"
    assert merged.origin(("seed",)) == "default"


def test_empty_table_on_the_command_line_replaces_that_of_a_recipe() -> None:
    base = values_layer({"data": {"id": "gymnasium", "arguments": {"is_slippery": False}}}, "base")
    assert merge_layers([base, values_layer({"data": {"arguments": {}}}, "file")]).tree == base.tree
    merged = merge_layers([base, *override_layers(["data.arguments={}", "data.arguments.sab=true"])])
    assert merged.tree["data"] == {"id": "gymnasium", "arguments": {"sab": True}}


@pytest.mark.parametrize("key", ["reward.1.weight", "reward.length.weight"])
def test_list_tables_are_addressed_by_index_or_id(key: str) -> None:
    base = values_layer({"reward": [{"id": "exact"}, {"id": "length", "weight": 1}]}, "base")
    merged = merge_layers([base, *override_layers([f"{key}=2"])])
    assert merged.tree["reward"] == [{"id": "exact"}, {"id": "length", "weight": 2}]
    assert merged.origin(("reward", "1", "weight")) == f"command line: {key}=2"
    assert merged.origin(("reward", "1", "id")) == "base"


def test_unknown_list_id_is_a_problem_with_a_suggestion() -> None:
    base = values_layer({"reward": [{"id": "exact"}]}, "base")
    merged = merge_layers([base, *override_layers(["reward.exakt.weight=2"])])
    (problem,) = merged.problems
    assert (problem.path, problem.reason) == ("reward.exakt", "did you mean 'exact'?")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-7", 5e-7),
        ("8", 8),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("[console, wandb]", ["console", "wandb"]),
        ("[calculator]", ["calculator"]),
        ("[1, 2", "[1, 2"),
        ("[a b]", "[a b]"),
        ('"8"', "8"),
        ("{a = 1}", {"a": 1}),
        ("Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B"),
        ("hello world", "hello world"),
        ("", ""),
        ("1\nx = 2", "1\nx = 2"),
        ("a=b", "a=b"),
    ],
)
def test_override_values_are_toml_or_plain_text(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_model_override_is_short_for_model_path() -> None:
    merged = merge_layers([values_layer({"model": {"dtype": "float32"}}, "base"), *override_layers(["model=a/b"])])
    assert merged.tree == {"model": {"dtype": "float32", "path": "a/b"}}
    assert merged.origin(("model", "path")) == "command line: model=a/b"


def test_null_unsets_a_value() -> None:
    assert merge_layers(override_layers(["evaluation.tasks=null"])).tree == {"evaluation": {"tasks": None}}


def test_all_malformed_overrides_are_reported_together() -> None:
    with pytest.raises(ProblemsError) as raised:
        override_layers(["trainer.steps", "=3", "a..b=1", "fine=1"])
    assert [problem.path for problem in raised.value.problems] == ["trainer.steps", "=3", "a..b=1"]


YAML = """\
model:
  path: x
trainer:
  learning_rate: 5e-7
  other: 1e-3
  octal: 0o17
  not_octal: 017
  flag: no
  on: off
  time: 1:30
  date: 2026-01-01
  quoted: '5e-7'
  nothing: ~
  yes_really: true
  infinite: -.inf
reward:
  - id: a
  - id: b
"""


def test_yaml_scalars_follow_yaml_1_2() -> None:
    pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'rlcore-core[yaml]'")
    tree, lines = parse_yaml(YAML, "x.yaml")
    assert tree["trainer"] == {
        "learning_rate": 5e-7,
        "other": 1e-3,
        "octal": 15,
        "not_octal": 17,
        "flag": "no",
        "on": "off",
        "time": "1:30",
        "date": "2026-01-01",
        "quoted": "5e-7",
        "nothing": None,
        "yes_really": True,
        "infinite": -math.inf,
    }
    assert lines["trainer", "learning_rate"] == 4
    assert lines["reward", "1", "id"] == 18


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2",
        "a: &x [*x]",
        "- 1",
        "a: [",
        "a: {b: 1",
        "a: !!python/object/apply:os.getcwd []",
        "a: !ENV ${HOME}",
        "a: !!binary aGk=",
        "a: {<<: {b: 1}}",
        "a: {[b, c]: 1}",
        "\n".join(["a: &a [x]", *(f"{c}: &{c} [{', '.join(['*' + b] * 9)}]" for b, c in pairwise("abcdefghij"))]),
    ],
)
def test_invalid_yaml_is_a_config_error(text: str) -> None:
    pytest.importorskip("yaml", reason="pyyaml is not installed: pip install 'rlcore-core[yaml]'")
    with pytest.raises(ConfigError) as raised:
        parse_yaml(text, "x.yaml")
    assert str(raised.value.where).startswith("x.yaml")


def test_yaml_without_pyyaml_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "a.yaml").write_text("a: 1")
    with pytest.raises(NotInstalledError) as raised:
        file_layer(tmp_path / "a.yaml")
    assert "rlcore-core[yaml]" in str(raised.value.fix)


def test_invalid_toml_is_a_config_error_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a = \n")
    with pytest.raises(ConfigError) as raised:
        file_layer(path)
    assert raised.value.where == str(path)
    assert "line 1" in str(raised.value.found)


@pytest.mark.parametrize("content", [None, b"a = '\xff'"], ids=["missing", "not UTF-8"])
def test_unreadable_files_are_config_errors(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        file_layer(path)
    assert str(path) in raised.value.message


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    texts.filter(lambda text: text != "null"),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
)
keys = st.text(st.sampled_from("abc_-. \"'\n#é"), min_size=1, max_size=6)
trees = st.recursive(
    st.dictionaries(keys, st.one_of(scalars, st.lists(scalars, max_size=3)), max_size=4),
    lambda inner: st.dictionaries(
        keys, st.one_of(scalars, inner, st.lists(inner.filter(bool), min_size=1, max_size=2)), max_size=3
    ),
    max_leaves=8,
)


@given(trees)
def test_written_toml_round_trips_with_line_numbers(tree: dict[str, Any]) -> None:
    text = toml_text(tree, lambda path: "file:1 # " + ".".join(path))
    assert tomllib.loads(text) == tree
    rows = text.split("\n")
    for path, line in toml_lines(text).items():
        if path[-1] in {"a", "b", "c"}:
            assert path[-1] in rows[line - 1]
