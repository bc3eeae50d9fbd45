"""The sampler ``ray``: the numbers of a local run, workers and machines that are lost, and refusals before a run.

The nodes of the cluster are processes on this machine.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from finished_runs import numbers
from preloaded import rlcore_command
from ray_cluster import ClusterRun, RayCluster, until

SMALL = ("-p", "gsm8k-tools", "trainer.tasks_per_step=4", "warmup.steps=10", "evaluation.every=0")


def started(cluster: RayCluster, folder: Path, *words: str) -> ClusterRun:
    """A run with the name ``there``."""
    sampler = ("sampler.id=ray", f"sampler.address={cluster.address}", "name=there")
    return ClusterRun(cluster, folder, *SMALL, *sampler, *words)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_run_has_the_numbers_of_a_local_one_although_workers_are_lost(cluster: RayCluster, tmp_path: Path) -> None:
    """One is killed, which Ray notices, and the other one is stopped, which only the heartbeats notice."""
    local = rlcore_command(["run", *SMALL, "trainer.steps=8", "name=here"], tmp_path)
    assert local.returncode == 0, local.stderr
    run = started(cluster, tmp_path, "trainer.steps=8")
    run.wait_for("step     1  ")
    assert f"2 workers of the Ray cluster {cluster.address}: " in run.printed
    first, second = cluster.workers()
    os.kill(first, signal.SIGKILL)
    run.wait_for("is lost and will be replaced")
    os.kill(second, signal.SIGSTOP)
    run.end()
    with suppress(ProcessLookupError):
        os.kill(second, signal.SIGKILL)  # Ray does not end a stopped process
    assert run.printed.count("is lost and will be replaced") == 2
    assert "no answer within 10 s" in run.printed
    assert numbers(tmp_path / "runs/here") == numbers(tmp_path / "runs/there")
    assert until(lambda: not cluster.workers(), 30), "workers outlive the run"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_machine_leaves_and_returns(cluster: RayCluster, tmp_path: Path) -> None:
    node = cluster.start(f"--address={cluster.address}")
    run = started(cluster, tmp_path, "sampler.workers=3", "trainer.steps=400")
    run.wait_for("step     1  ")
    node.terminate()
    node.wait(timeout=60)
    run.wait_for("is lost and will be replaced")
    cluster.start(f"--address={cluster.address}")
    run.wait_for("has been started")
    run.process.send_signal(signal.SIGINT)
    run.end(130)
    assert (tmp_path / "runs/there/checkpoints").is_dir()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_processes_that_train_have_the_rewards_of_a_local_run(cluster: RayCluster, tmp_path: Path) -> None:
    local = rlcore_command(["run", *SMALL, "trainer.steps=2", "name=here"], tmp_path)
    assert local.returncode == 0, local.stderr
    started(cluster, tmp_path, "trainer.steps=2", "strategy.id=fsdp2", "strategy.processes=2").end()
    here, there = (numbers(tmp_path / "runs" / name) for name in ("here", "there"))
    assert [row["reward/mean"] for row in there.values()] == [row["reward/mean"] for row in here.values()]
    losses, ours = ([row["loss/total"] for row in rows.values() if "loss/total" in row] for rows in (there, here))
    assert losses == pytest.approx(ours, abs=1e-6)
    assert losses, "no step has trained"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_second_run_says_that_it_waits_for_the_first(cluster: RayCluster, tmp_path: Path) -> None:
    first = started(cluster, tmp_path, f"sampler.workers={cluster.nodes()}", "trainer.steps=400")
    first.wait_for("step     1  ")
    (tmp_path / "second").mkdir()
    second = started(cluster, tmp_path / "second", "trainer.steps=1", "sampler.start_timeout_s=120")
    second.wait_for("other work uses the Ray cluster")
    assert "free are CPU 0 and GPU 0, and 2 workers need CPU 2 and GPU 0. The run waits for them" in second.printed
    first.process.send_signal(signal.SIGINT)
    second.end()
    first.end(130)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_cluster_without_room_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    run = started(cluster, tmp_path, "sampler.workers=9")
    run.end(2)
    assert "the cluster has no room for 9 workers, each with CPU 1 and GPU 0" in run.printed
    assert f": CPU 1, GPU 0\n  from   sampler.workers\n  fix    set sampler.workers={cluster.nodes()}" in run.printed
    assert not (tmp_path / "runs/there").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["sampler.address=ray://127.0.0.1:10001"], "the process of the run must be part of the cluster"),
        (["sampler.address=127.0.0.1:1"], "there is no Ray cluster: Connection refused"),
        (["sampler.address=here"], "there is no Ray cluster"),
        (["sampler.workers=0"], "greater than or equal to 1"),
        (["model.quantization=nf4", "lora.rank=4"], "quantised weights cannot be sent"),
    ],
)
def test_what_cannot_be_sampled_there_is_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    done = rlcore_command(["run", "-p", "gsm8k-tools", "sampler.id=ray", *words, "--dry-run"], tmp_path)
    assert done.returncode == 2
    assert reason in done.stderr
