from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore.config.layers import Layer
from rlcore.config.messages import ProblemsError
from rlcore.config.resolve import resolve
from rlcore.config.schema import RolloutTable
from rlcore.plugins.registry import Registry
from rlcore_trainer.algorithms.config import AlgorithmConfig, KlConfig, response_limit
from rlcore_trainer.algorithms.losses.clip import clip
from rlcore_trainer.config import PolicyGradientConfig, WarmupConfig


@pytest.mark.parametrize(
    ("name", "estimator"), [("k2", "mse"), ("low_var_kl", "k3"), ("kl", "k1"), ("abs", "abs"), ("k3", "k3")]
)
def test_estimators_have_their_common_names(name: str, estimator: str) -> None:
    assert KlConfig.model_validate({"estimator": name}).estimator == estimator


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (KlConfig, {"estimator": "full"}),
        (KlConfig, {"target": "advantage"}),
        (PolicyGradientConfig, {"learning_rate": 0}),
        (PolicyGradientConfig, {"schedule": "steps"}),
        (PolicyGradientConfig, {"max_grad_norm": 1.0}),
        (clip.Config, {"clip_low": 1.5}),
        (clip.Config, {"gamma": 0.5}),
        (AlgorithmConfig, {"aggregation": "mean"}),
        (WarmupConfig, {"steps": -1}),
    ],
)
def test_meaningless_values_are_rejected(model: type[KlConfig], values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_every_key_has_a_description() -> None:
    registry = Registry()
    own = [registry.config_model(kind, spec.id) for kind in ("advantage", "loss") for spec in registry.specs(kind)]
    for model in (PolicyGradientConfig, AlgorithmConfig, KlConfig, WarmupConfig, *filter(None, own)):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_configuration_check_imports_nothing_heavy() -> None:
    code = (
        "import rlcore_trainer.config, sys\n"
        "from rlcore.plugins.registry import Registry\n"
        "registry = Registry()\n"
        "for kind in ('advantage', 'loss'):\n"
        "    for spec in registry.specs(kind): registry.load(kind, spec.id), registry.config_model(kind, spec.id)\n"
        "print([m for m in ('torch', 'transformers', 'numpy') if m in sys.modules])"
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
def test_response_limit_applies_to_the_whole_trajectory(asked: int | None, environment: Any, expected: int) -> None:
    rollout = RolloutTable(max_new_tokens=100)
    assert response_limit(AlgorithmConfig(max_response_tokens=asked), rollout, environment) == expected


@pytest.mark.parametrize(
    ("values", "loss"),
    [
        ({}, {"id": "clip"}),
        ({"loss": "sapo"}, {"id": "sapo"}),
        ({"loss": {"clip_high": 0.3}}, {"id": "clip", "clip_high": 0.3}),
    ],
)
def test_string_is_an_id(values: dict[str, Any], loss: dict[str, Any]) -> None:
    table = AlgorithmConfig(**values)
    assert table.loss.model_dump() == loss
    assert AlgorithmConfig(**table.model_dump()) == table


@pytest.mark.parametrize(
    ("steps", "tasks", "expected"),
    [(7, 100, 7), ("1 pass", 10, 3), ("3 passes", 12, 9), ("3 passes", 15, 12), ("2 passes", 4, 2)],
)
def test_passes_over_the_tasks_become_whole_steps(steps: int | str, tasks: int, expected: int) -> None:
    assert PolicyGradientConfig(steps=steps, tasks_per_step=4).steps_of(tasks) == expected


@pytest.mark.parametrize("steps", ["", "three", "0 passes", "-1 passes", "1.5 passes", "passes", 0])
def test_other_texts_are_not_a_number_of_steps(steps: int | str) -> None:
    with pytest.raises(ValidationError):
        PolicyGradientConfig(steps=steps)


def test_warmup_ratio_is_a_fraction_of_all_steps() -> None:
    assert PolicyGradientConfig(lr_warmup_ratio=0.1).warmup_of(30) == 3
    assert PolicyGradientConfig(lr_warmup_ratio=0.1, lr_warmup_steps=5).warmup_of(30) == 5
    assert PolicyGradientConfig().warmup_of(30) == 0


def test_table_of_another_trainer_is_named_with_its_trainer() -> None:
    tree = {"model": {"path": "builtin:tiny-qwen2"}, "trainer": {"id": "reward-model"}, "preference": {"sft": 0.1}}
    with pytest.raises(ProblemsError) as raised:
        resolve([Layer(tree=tree, origins={(): "a test"})], Registry())
    (problem,) = [one for one in raised.value.problems if one.path == "preference"]
    assert problem.reason == "it is a table of trainer.id=preference"
