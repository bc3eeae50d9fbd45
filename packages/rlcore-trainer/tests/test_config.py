from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore.config.layers import file_layer, override_layers, values_layer
from rlcore.config.resolve import Resolved, resolve
from rlcore.config.schema import RolloutTable
from rlcore.registry import Registry
from rlcore_trainer.algorithm_config import AlgorithmConfig, KlConfig, response_limit
from rlcore_trainer.config import PolicyGradientConfig, WarmupConfig


@pytest.mark.parametrize(
    ("name", "estimator"), [("k2", "mse"), ("low_var_kl", "k3"), ("kl", "k1"), ("abs", "abs"), ("k3", "k3")]
)
def test_estimators_have_the_names_that_people_know(name: str, estimator: str) -> None:
    assert KlConfig.model_validate({"estimator": name}).estimator == estimator


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (KlConfig, {"estimator": "full"}),
        (KlConfig, {"target": "advantage"}),
        (PolicyGradientConfig, {"learning_rate": 0}),
        (PolicyGradientConfig, {"schedule": "steps"}),
        (PolicyGradientConfig, {"max_grad_norm": 1.0}),
        (AlgorithmConfig, {"clip_low": 1.5}),
        (AlgorithmConfig, {"aggregation": "mean"}),
        (WarmupConfig, {"steps": -1}),
    ],
)
def test_values_that_mean_nothing_are_refused(model: type[KlConfig], values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_every_knob_says_what_it_does() -> None:
    for model in (PolicyGradientConfig, AlgorithmConfig, KlConfig, WarmupConfig):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_checking_a_configuration_imports_nothing_heavy() -> None:
    code = (
        "import rlcore_trainer.config, sys; print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


BASE = {
    "model": {"path": "builtin:tiny-qwen2"},
    "environment": {"id": "gsm8k-tools"},
    "reward": [{"id": "math-numeric-equal"}],
}


def resolved(registry: Registry, *overrides: str, written: str | None = None) -> Resolved:
    """A new run with these overrides, or one that goes on from what another has written."""
    base = values_layer(BASE, "test") if written is None else file_layer(Path("config.toml"), text=written)
    return resolve([base, *override_layers(overrides)], registry)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("", "algorithm.loss=cispo"),
        ("", "algorithm.loss=sapo"),
        ("", "algorithm.importance_sampling_level=sequence"),
        ("algorithm.loss=gspo", "algorithm.loss=clip"),
        ("algorithm.importance_sampling_level=sequence", "algorithm.importance_sampling_level=token"),
        ("algorithm.clip_high=0.28", "algorithm.loss=cispo"),
        ("algorithm.aggregation=token-mean", "algorithm.loss=gspo"),
    ],
)
def test_another_loss_at_a_resume_is_resolved_as_in_a_new_run(first: str, then: str) -> None:
    registry = Registry()
    before, after = ([first] if first else []), [then]
    written = resolved(registry, *before).text()
    found = resolved(registry, *after, written=written)
    expected = resolved(registry, *before, *after)
    assert found.options["algorithm"] == expected.options["algorithm"]
    again = resolved(registry, written=found.text())
    assert again.tree() == expected.tree()


def test_what_follows_from_the_loss_is_a_comment_and_what_was_asked_is_not() -> None:
    lines = resolved(Registry(), "algorithm.loss=gspo", "algorithm.clip_low=0.1").text().splitlines()
    assert [line.split("#")[0].strip() for line in lines if line.startswith(("loss =", "clip_low ="))] == [
        'loss = "gspo"',
        "clip_low = 0.1",
    ]
    assert any(line.startswith("# clip_high = 0.0004 ") for line in lines)


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, SimpleNamespace(max_turns=3), 300),
        (None, SimpleNamespace(max_turns="many"), 100),
        (None, SimpleNamespace(), 100),
        (None, None, 100),
        (64, SimpleNamespace(max_turns=3), 64),
    ],
)
def test_the_limit_of_a_response_is_that_of_the_whole_trajectory(
    asked: int | None, environment: Any, expected: int
) -> None:
    rollout = RolloutTable(max_new_tokens=100)
    assert response_limit(AlgorithmConfig(max_response_tokens=asked), rollout, environment) == expected
