"""The default recipe trains some steps with advantages, losses and estimators that few runs select.

``test_algorithms_in_a_run.py`` trains every algorithm on a bandit, and ``test_algorithms_learn.py`` the recipe in full.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import rlcore

pytestmark = pytest.mark.long

SMALL: dict[str, Any] = {
    "trainer": {"steps": 2, "tasks_per_step": 4, "updates_per_rollout": 2},
    "rollout": {"group_size": 4},
    "warmup": {"steps": 3},
    "evaluation": {"every": 0},
    "checkpoint": {"every": 0},
}
ALGORITHMS: list[dict[str, Any]] = [
    {"advantage": "max-rl", "loss": "dppo-tv"},
    {"advantage": "gdpo", "loss": "clip-cov", "overlong": {"buffer": 8}},
    {"advantage": "optimal-token-baseline", "loss": "vespo"},
    {"advantage": {"id": "grpo", "normalise_by_std": "batch"}, "loss": "luspo"},
    {"loss": "dppo-kl", "kl": {"coefficient": 0.1, "estimator": "k1+"}},
    {"loss": "symmetric-tv", "kl": {"coefficient": 0.1, "estimator": "k3+"}},
    {"loss": "kl-cov", "off_policy_threshold": 0.1},
]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: one["loss"])
def test_the_default_recipe_trains_with_it(algorithm: dict[str, Any], tmp_path: Path) -> None:
    run = rlcore.train("gsm8k-tools", algorithm=algorithm, runs=str(tmp_path), name="run", **SMALL)
    last = run.metrics.to_pandas().loc[2]
    assert last["updates"] >= 1
    assert 0 < last["gradient_norm"] < math.inf
    if "kl" in algorithm:
        assert math.isfinite(last["kl/mean"])
    if "off_policy_threshold" in algorithm:
        assert 0 <= last["off_policy/masked"] <= 1
