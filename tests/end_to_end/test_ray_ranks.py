"""Processes that train on the machines of a Ray cluster: the numbers of a local run, lost processes, and refusals.

The nodes of the cluster are processes on this machine.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from finished_runs import numbers, succeeded
from preloaded import rlcore_command
from ray_cluster import MARK, ClusterRun, RayCluster, until
from running_processes import processes_with

SMALL = ("-p", "gsm8k-tools", "trainer.tasks_per_step=4", "warmup.steps=10", "evaluation.every=0", "checkpoint.every=1")
TWO = ("strategy.id=ddp", "strategy.processes=2", "model.device=cpu")


def ranks(cluster: RayCluster) -> list[int]:
    """The processes that a cluster has started to train."""
    return list(processes_with("RANK=1", f"{MARK}={cluster.mark}"))


def started(cluster: RayCluster, folder: Path, *words: str) -> ClusterRun:
    """A run whose second process is on another node."""
    return ClusterRun(cluster, folder, *SMALL, *TWO, f"strategy.address={cluster.address}", *words)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_run_has_the_numbers_of_a_local_one_although_a_process_is_lost(cluster: RayCluster, tmp_path: Path) -> None:
    succeeded(rlcore_command(["run", *SMALL, *TWO, "trainer.steps=4", "name=here"], tmp_path, timeout_s=600))
    run = started(cluster, tmp_path, "trainer.steps=4", "name=there", "--retries", "1")
    run.wait_for("step     2  ")
    (lost,) = ranks(cluster)
    os.kill(lost, signal.SIGKILL)
    run.end()
    assert f"processes 2 in the Ray cluster {cluster.address}: " in run.printed
    assert "another process of this run ended unexpectedly" in run.printed or "was ended by SIGKILL" in run.printed
    assert numbers(tmp_path / "runs/here") == numbers(tmp_path / "runs/there")
    assert until(lambda: not ranks(cluster), 30), "a process outlives the run"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_stop_reaches_all_processes(cluster: RayCluster, tmp_path: Path) -> None:
    run = started(cluster, tmp_path, "trainer.steps=400", "name=there")
    run.wait_for("warm-up")
    waiting = started(cluster, tmp_path, "name=second")
    waiting.wait_for("note      other work uses the Ray cluster")
    waiting.process.send_signal(signal.SIGINT)
    assert waiting.process.wait(timeout=30) == 130, waiting.printed
    run.wait_for("step     1  ")
    run.process.send_signal(signal.SIGTERM)
    run.end(143)
    assert "resume with" in run.printed
    assert until(lambda: not ranks(cluster), 30), "a process outlives the run"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_cluster_without_room_is_named(cluster: RayCluster, tmp_path: Path) -> None:
    run = started(cluster, tmp_path, "strategy.processes=9", "name=there")
    run.end(2)
    assert "the cluster has no room for 9 processes, each with CPU 1 and GPU 0" in run.printed
    assert f"fix    set strategy.processes={cluster.nodes()}" in run.printed
    assert not (tmp_path / "runs/there").exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_samplers_need_room_beside_the_processes_that_train(cluster: RayCluster, tmp_path: Path) -> None:
    workers = f"sampler.workers={cluster.nodes() - 1}"
    run = started(cluster, tmp_path, "sampler.id=ray", f"sampler.address={cluster.address}", workers, "name=there")
    run.end(2)
    assert f"room for {cluster.nodes() - 2} beside 2 that train" in run.printed


@pytest.mark.parametrize(
    ("words", "variables", "reason"),
    [
        (["strategy.address=127.0.0.1:1", "strategy.processes=2"], {}, "there is no Ray cluster: Connection refused"),
        (["strategy.address=auto"], {}, "strategy.address needs the number of processes"),
        (
            ["strategy.address=auto", "strategy.processes=2", "sampler.id=ray"],
            {},
            "would use the GPUs of the processes that train",
        ),
        (["strategy.address=auto", "strategy.processes=2"], {"WORLD_SIZE": "2"}, "another launcher has started"),
    ],
)
def test_what_cannot_be_started_there_is_refused(
    words: list[str], variables: dict[str, str], reason: str, tmp_path: Path
) -> None:
    command = ["run", "-p", "gsm8k-tools", "strategy.id=ddp", *words, "--dry-run"]
    done = rlcore_command(command, tmp_path, environment={**os.environ, **variables})
    assert done.returncode == 2
    assert reason in done.stderr
