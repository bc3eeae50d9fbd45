"""The calculator agent learns from the verdicts of a judge over HTTP, and not from shuffled ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from chat_server import Endpoint
from finished_runs import evaluations, succeeded
from judging_server import judged
from preloaded import rlcore_command


def accuracies(folder: Path, *words: str) -> list[float]:
    """The share of held-out problems that the judge calls solved, at each evaluation."""
    endpoint = Endpoint()
    endpoint.answer = judged
    judge = (f'reward.0.base_url=["{endpoint.url}"]', "reward.0.model=judge")
    short = ("trainer.steps=15", "evaluation.every=5", "checkpoint.every=0", "name=run")
    try:
        command = ["run", "-p", "gsm8k-tools", "reward.0.id=llm-judge", *judge, *short, *words]
        succeeded(rlcore_command(command, folder, timeout_s=900))
    finally:
        endpoint.close()
    assert len(endpoint.bodies) > 100
    return list(evaluations(folder / "runs/run").values())


@pytest.mark.proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [0, 1])
def test_verdicts_teach(seed: int, tmp_path: Path) -> None:
    found = accuracies(tmp_path, f"seed={seed}")
    print(f"seed {seed}: {found[0]:.3f} to {found[-1]:.3f}")
    assert found[0] < 0.3
    assert found[-1] > 0.8


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_shuffled_verdicts_teach_nothing(tmp_path: Path) -> None:
    assert accuracies(tmp_path, "algorithm.shuffle_rewards=true")[-1] < 0.3
