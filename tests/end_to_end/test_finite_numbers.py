"""Every float of every configuration model rejects NaN and infinity, in every way to write them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from rlcore.config.fields import annotation_of, keys_of, number_type
from rlcore.config.layers import Layer, file_layer, override_layers, values_layer
from rlcore.config.messages import ProblemsError
from rlcore.config.resolve import resolve
from rlcore.config.schema import RewardTable, RunConfig
from rlcore.config.tables import validate_options
from rlcore.plugins.registry import KINDS, Registry
from rlcore.specs import TrainerSpec

WRITTEN = ("nan", "inf", "-inf", "+nan", "1e999", '"nan"', "'-Infinity'")
"""Command-line values. All of them are values in a TOML file as well."""
BASE = {
    "model": {"path": "builtin:tiny-qwen2"},
    "environment": {"id": "gsm8k-tools"},
    "reward": [{"id": "math-numeric-equal"}],
}


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """The model of the run, and those of all installed components."""
    registry = Registry()
    yield "run", RunConfig
    yield "reward table", RewardTable
    for kind in KINDS:
        for spec in registry.specs(kind):
            if (model := registry.config_model(kind, spec.id)) is not None:
                yield f"{kind} {spec.id}", model
            for target in dict(spec.tables).values() if isinstance(spec, TrainerSpec) else ():
                yield f"{kind} {spec.id}: {target}", registry.load_for(kind, spec, target)


FLOATS = {
    f"{name}.{key}": (model, key)
    for name, model in models()
    for key in keys_of(model)
    if ".0." not in key and number_type(annotation_of(model, tuple(key.split(".")))) == "float"
}


def refused(layer: Layer | list[Layer], model: type[BaseModel]) -> dict[str, str]:
    """Reasons by key."""
    with pytest.raises(ProblemsError) as caught:
        validate_options(model, layer if isinstance(layer, list) else [layer], subject="a table")
    return {problem.path: problem.reason for problem in caught.value.problems if problem.kind == "bad value"}


def test_all_packages_and_plugins_are_covered() -> None:
    packages = {model.__module__.partition(".")[0] for model, _ in FLOATS.values()}
    assert packages >= {"rlcore", "rlcore_rollout", "rlcore_trainer", "rl_plugin_string_equal"}
    assert len(FLOATS) > 40


@pytest.mark.parametrize("name", FLOATS)
def test_float_rejects_nan_and_infinity_in_every_notation(name: str) -> None:
    model, key = FLOATS[name]
    for text in WRITTEN:
        assert key in refused(override_layers([f"{key}={text}"]), model), text
        assert key in refused(file_layer(Path("a.toml"), text=f"{key} = {text}\n"), model), text
    *tables, last = key.split(".")
    for value in (math.nan, math.inf, -math.inf):
        tree: dict[str, Any] = {last: value}
        for table in reversed(tables):
            tree = {table: tree}
        assert key in refused(values_layer(tree, "json"), model), value


@pytest.mark.parametrize("text", WRITTEN)
def test_weight_of_a_reward_must_be_finite_in_a_run(text: str) -> None:
    for layer in (
        *override_layers([f"reward.math-numeric-equal.weight={text}"]),
        file_layer(Path("a.toml"), text=f'[[reward]]\nid = "math-numeric-equal"\nweight = {text}\n'),
    ):
        with pytest.raises(ProblemsError) as caught:
            resolve([values_layer(BASE, "test"), layer], Registry())
        assert {(problem.kind, problem.path) for problem in caught.value.problems} == {("bad value", "reward.0.weight")}


def test_yaml_file_rejects_a_nan_weight() -> None:
    layer = file_layer(Path("a.yaml"), text="reward:\n- id: math-numeric-equal\n  weight: .nan\n")
    with pytest.raises(ProblemsError) as caught:
        resolve([values_layer(BASE, "test"), layer], Registry())
    (problem,) = caught.value.problems
    assert (problem.path, problem.origin) == ("reward.0.weight", "a.yaml:3")


class Inner(BaseModel):
    ratio: float = 0.5


class Plain(BaseModel):
    """A third party's model that is not a `Table`."""

    plain: float = 1.0
    optional: float | None = None
    many: list[float] = []
    named: dict[str, float] = {}
    inner: Inner = Inner()
    open: float = Field(1.0, allow_inf_nan=True)
    forever: float = math.inf


@pytest.mark.parametrize("key", ["plain", "optional", "many", "named", "inner.ratio"])
def test_plain_models_of_third_parties_reject_them(key: str) -> None:
    text = {"many": "[1.0, nan]", "named": "{a = inf}"}.get(key, "nan")
    (found,) = refused(override_layers([f"{key}={text}"]), Plain)
    assert found == {"many": "many.1", "named": "named.a"}.get(key, key)


def test_field_can_allow_infinity() -> None:
    found = validate_options(Plain, override_layers(["open=inf", "forever=inf"]), subject="a table")
    assert isinstance(found, Plain)
    assert (found.open, found.forever) == (math.inf, math.inf)
