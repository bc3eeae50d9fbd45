from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore.config.schema import RolloutTable
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
