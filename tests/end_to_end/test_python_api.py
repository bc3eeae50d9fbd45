"""``rlcore.train`` with the real trainer and engine, in a process that goes on."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import rlcore
import torch
from finished_runs import numbers
from rlcore_models.thread_teams import limit_threads
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

pytestmark = pytest.mark.long

SHORT: dict[str, Any] = {
    "warmup": {"steps": 0},
    "trainer": {"steps": 2, "tasks_per_step": 2},
    "rollout": {"group_size": 2, "max_new_tokens": 8},
    "evaluation": {"tasks": 4, "every": 1},
}


@pytest.fixture
def short(untrained: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings of a run that takes a second."""
    return {"model": untrained, "runs": tmp_path, **SHORT}


def state() -> dict[str, object]:
    return {
        "torch threads": torch.get_num_threads(),
        "transformers": (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()),
        "variables": dict(os.environ),
        "logging": (list(logging.root.handlers), logging.lastResort),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "random": random.getstate(),
    }


def own_threads() -> set[threading.Thread]:
    """Threads of rlcore, except for idle ones, which end on their own."""
    threads = threading.enumerate()
    return {one for one in threads if one.name.startswith("rlcore-") and one.name != "rlcore-slow-plugins"}


@pytest.fixture
def spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without settings for OpenMP, so that a small model is trained on one thread."""
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("spinning")
def test_calling_process_keeps_its_threads_logging_and_signals(short: dict[str, Any]) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    limit_threads(1)  # as a model does that was loaded before, without the Python API
    torch.set_num_threads(2)
    try:
        before, threads_before = state(), own_threads()  # other tests of this process may have left threads
        run = rlcore.train("gsm8k-tools", **short)
        rlcore.evaluate(run)
        with pytest.raises(rlcore.UserError):
            rlcore.train("gsm8k-tools", **short, data={"train": "missing.jsonl"})
        assert state() == before
        assert own_threads() <= threads_before
    finally:
        torch.set_num_threads(threads)


def test_models_and_optimisers_are_freed(short: dict[str, Any]) -> None:
    def held() -> int:
        gc.collect()
        kinds = (PreTrainedModel, torch.optim.Optimizer)
        return sum(issubclass(type(found), kinds) for found in gc.get_objects())

    before = held()
    run = rlcore.train("gsm8k-tools", **short, algorithm={"kl": {"coefficient": 0.01}})
    rlcore.evaluate(run)
    assert held() == before


def test_training_inside_a_running_loop_gives_the_same_run(short: dict[str, Any]) -> None:
    async def cell() -> rlcore.Run:
        return rlcore.train("gsm8k-tools", **short)

    inside, outside = asyncio.run(cell()), rlcore.train("gsm8k-tools", **short)
    assert numbers(inside.path) == numbers(outside.path)
    assert list(inside.trajectories()) == list(outside.trajectories())


def test_training_in_a_thread_leaves_the_event_loop_free(short: dict[str, Any]) -> None:
    async def main() -> int:
        turns = 0
        training = asyncio.create_task(asyncio.to_thread(rlcore.train, "gsm8k-tools", **short))
        while not training.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert (await training).last_checkpoint is not None
        return turns

    started = time.monotonic()
    assert asyncio.run(main()) > (time.monotonic() - started) * 2


def test_metrics_and_trajectories_as_data_frames(short: dict[str, Any]) -> None:
    run = rlcore.train("gsm8k-tools", **short)
    metrics, trajectories = run.metrics.to_pandas(), run.trajectories().to_pandas()
    assert metrics.loc[2, "reward/mean"] == run.metrics["reward/mean"][2]
    assert metrics.index.tolist() == [0, 1, 2]
    assert run.metrics.to_polars()["step"].to_list() == [0, 1, 2]
    assert len(trajectories) == 2 * 2 * 2 + 3 * 4
    assert set(trajectories["purpose"]) == {"train", "evaluation"}
    assert run.trajectories("train").to_polars().shape[0] == 8


def test_session_gives_the_parts_of_a_run(short: dict[str, Any]) -> None:
    with rlcore.open_session("gsm8k-tools", seed=3) as run:
        folder = run.model_folder()
        assert (folder / "model.safetensors").is_file()
        assert len(run.dataset.tasks("evaluation")) == 128
        assert [reward.id for reward in run.rewards()] == ["math-numeric-equal"]
    assert not folder.exists()
    with pytest.raises(rlcore.ConfigError), rlcore.open_session("gsm8k-tools", seed=-1):
        pass


def test_keys_of_other_systems_keep_their_origin(capsys: pytest.CaptureFixture[str]) -> None:
    with rlcore.open_session("gsm8k-tools", **{"actor_rollout_ref.actor.optim.lr": 5e-7}) as run:
        assert run.resolved.origin(("trainer", "learning_rate")) == "Python: actor_rollout_ref.actor.optim.lr=5e-07"
    assert "trainer.learning_rate = 5e-07" in capsys.readouterr().err
