"""Settings derived from the loss are resolved again when a run resumes with another loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rlcore.config.layers import file_layer, override_layers, values_layer
from rlcore.config.messages import ProblemsError
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.plugins.registry import Registry

BASE = {
    "model": {"path": "builtin:tiny-qwen2"},
    "environment": {"id": "gsm8k-tools"},
    "reward": [{"id": "math-numeric-equal"}],
}


def resolved(registry: Registry, *overrides: str, written: str | None = None) -> Resolved:
    """The configuration of a new run, or of a run resumed from the written configuration."""
    base = values_layer(BASE, "test") if written is None else file_layer(Path("config.toml"), text=written)
    return resolve([base, *override_layers(overrides)], registry)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("", "algorithm.loss=cispo"),
        ("", "algorithm.loss=sapo"),
        ("algorithm.loss=gspo", "algorithm.loss=clip"),
        ("algorithm.loss.clip_high=0.28", "algorithm.loss=cispo"),
        ("algorithm.aggregation=token-mean", "algorithm.loss=gspo"),
    ],
)
def test_resume_with_another_loss_resolves_like_a_new_run(first: str, then: str) -> None:
    registry = Registry()
    before, after = ([first] if first else []), [then]
    written = resolved(registry, *before).text()
    found = resolved(registry, *after, written=written)
    expected = resolved(registry, *before, *after)
    assert found.options == expected.options
    again = resolved(registry, written=found.text())
    assert again.tree() == expected.tree()


def test_only_default_values_of_a_loss_are_comments() -> None:
    lines = resolved(Registry(), "algorithm.loss=gspo", "algorithm.loss.clip_low=0.1").text().splitlines()
    table = lines[lines.index("[algorithm.loss]") :][1:4]
    assert [line.split("  ")[0] for line in table] == ['id = "gspo"', "clip_low = 0.1", "# clip_high = 0.0004"]


def test_gspo_on_resume_replaces_the_defaults_of_clip() -> None:
    registry = Registry()
    layers = [values_layer(BASE, "test"), values_layer({"algorithm": {"loss": "clip"}}, "recipe:1")]
    before = resolve(layers, registry)
    assert [path for path, by in before.origins.items() if by == "recipe:1"] == [("algorithm", "loss", "id")]
    written = before.text()
    found = resolved(registry, "algorithm.loss=gspo", written=written)
    loss = found.tree()["algorithm"]["loss"]
    assert loss == {"id": "gspo", "clip_low": 3e-4, "clip_high": 4e-4}


RECIPE = {"loss": {"id": "clip", "dual_clip": 3.0}, "advantage": "rloo"}


@pytest.mark.parametrize(
    ("recipe", "overrides", "loss"),
    [
        ({"loss": "clip"}, ["algorithm.loss.clip_high=0.3"], {"id": "clip", "clip_high": 0.3}),
        ({}, ["algorithm.loss=gspo", "algorithm.loss.clip_high=0.1"], {"id": "gspo", "clip_high": 0.1}),
        ({}, ["algorithm.loss.clip_high=0.1", "algorithm.loss=gspo"], {"id": "gspo", "clip_high": 0.1}),
        ({}, ['algorithm.loss={id="cispo",clip_high=2}'], {"id": "cispo", "clip_high": 2.0}),
        (RECIPE, ["algorithm.loss.clip_high=0.3"], {"id": "clip", "dual_clip": 3.0, "clip_high": 0.3}),
        (RECIPE, ["algorithm.loss=sapo"], {"id": "sapo"}),  # another loss leaves the keys of the first behind
        (RECIPE, ["algorithm.loss=clip"], {"id": "clip", "dual_clip": 3.0}),
    ],
)
def test_string_and_table_of_a_loss_are_merged(recipe: Any, overrides: list[str], loss: dict[str, Any]) -> None:
    layers = [values_layer({**BASE, "algorithm": recipe}, "recipe:1"), *override_layers(overrides)]
    tree = resolve(layers, Registry()).tree()["algorithm"]["loss"]
    assert {key: tree[key] for key in loss} == loss


@pytest.mark.parametrize(
    ("overrides", "key", "origin"),
    [
        (["algorithm.loss=sapo", "algorithm.loss.clip_high=0.3"], "algorithm.loss.clip_high", "clip_high=0.3"),
        (["algorithm.clip_high=0.3"], "algorithm.clip_high", "algorithm.clip_high=0.3"),
        (["algorithm.loss.clip_low=3"], "algorithm.loss.clip_low", "clip_low=3"),
        (["algorithm.advantage=grp"], "algorithm.advantage.id", "algorithm.advantage=grp"),
        (["algorithm.entropy=x", "algorithm.loss.clip_low=3"], "algorithm.loss.clip_low", "clip_low=3"),
    ],
)
def test_error_in_a_table_has_its_key_and_origin(overrides: list[str], key: str, origin: str) -> None:
    with pytest.raises(ProblemsError) as caught:
        resolved(Registry(), *overrides)
    (problem,) = (problem for problem in caught.value.problems if problem.path == key)
    assert problem.origin.endswith(origin)
