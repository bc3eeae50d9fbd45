from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError
from rlcore_trainer.algorithm_config import AlgorithmConfig, KlConfig
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
