"""The default recipe on a Ray cluster of two hosts, one of which is a network namespace: it learns as on one host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from finished_runs import evaluations, numbers, succeeded
from other_host import OtherHost
from preloaded import rlcore_command
from ray_cluster import RayCluster, until
from running_processes import processes_with

RANKS = ("strategy.id=fsdp2", "strategy.processes=2", "model.device=cpu")


@pytest.fixture
def address(other: OtherHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster with a node on each host."""
    cluster = RayCluster(other.near)
    try:
        where = (f"--address={cluster.address}", f"--node-ip-address={other.address}")
        cluster.start(*where, before=other.inside)
        for name, value in cluster.variables.items():
            monkeypatch.setenv(name, value)
        yield cluster.address
    finally:
        cluster.close()


def accuracies(folder: Path, name: str, seed: int, *words: str) -> list[float]:
    """Train with these overrides, and return the held-out accuracy before and after."""
    short = ("trainer.steps=15", "evaluation.every=15", "checkpoint.every=0", f"seed={seed}", f"name={name}")
    succeeded(rlcore_command(["run", "-p", "gsm8k-tools", *short, *words], folder, timeout_s=1200))
    found = list(evaluations(folder / "runs" / name).values())
    print(f"seed {seed}, {name}: {found[0]:.3f} to {found[-1]:.3f}")
    assert found[0] < 0.3
    assert found[-1] > 0.8
    return found


@pytest.mark.proof
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_learner_with_an_engine_on_each_host(address: str, seed: int, tmp_path: Path) -> None:
    accuracies(tmp_path, "here", seed)
    accuracies(tmp_path, "there", seed, "sampler.id=ray", f"sampler.address={address}")
    assert numbers(tmp_path / "runs/there") == numbers(tmp_path / "runs/here")


@pytest.mark.proof
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_processes_that_train(address: str, seed: int, tmp_path: Path) -> None:
    here = accuracies(tmp_path, "here", seed, *RANKS)
    there = accuracies(tmp_path, "there", seed, *RANKS, f"strategy.address={address}")
    assert there == here


@pytest.mark.proof
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_processes_that_train_and_a_vllm_that_samples_ahead(address: str, seed: int, tmp_path: Path) -> None:
    words = (*RANKS, f"strategy.address={address}", "rollout.engine=vllm", "schedule.ahead=1")
    accuracies(tmp_path, "there", seed, *words)


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_process_on_a_host_that_was_cut_off_ends(address: str, other: OtherHost, tmp_path: Path) -> None:
    """Those on this host wait for three minutes, and so does the other one, whose connections never close."""
    words = ("run", "-p", "gsm8k-tools", "trainer.steps=4000", "warmup.steps=10", "evaluation.every=0", "name=cut")
    command = [sys.executable, "-u", "-m", "rlcore", *words, *RANKS, f"strategy.address={address}"]
    printed = ""
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            printed += line
            if line.startswith("step     2 "):
                (far,) = ranks()
                other.cut()
    assert run.returncode == 1, printed
    assert "has not responded for 10 s" in printed
    assert until(lambda: not Path(f"/proc/{far}").exists(), 300), "a process outlives the run"


def ranks() -> list[int]:
    """The processes that train on the other host."""
    return [process for process, line in processes_with("RANK=1").items() if "rlcore" in line]
