from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands_here import rlcore as rlcore
from other_host import OtherHost
from ray_cluster import RayCluster


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model and tokenizer of the default recipe, read-only. The output layer is tied to the embedding."""
    from rlcore.session.session import RunSession

    run = RunSession.create(
        {
            "model": {"path": "builtin:tiny-qwen2"},
            "environment": {"id": "gsm8k-tools"},
            "reward": [{"id": "math-numeric-equal"}],
            "data": {"train": "generated", "evaluation": "generated"},
        }
    )
    folder = tmp_path_factory.mktemp("untrained") / "model"
    try:
        shutil.copytree(run.model_folder(), folder)
    finally:
        run.finished()
    return folder


@pytest.fixture(scope="session")
def equal_rows() -> None:
    """Skip tests of bit-identical results if the result of a matrix product depends on the number of rows.

    This is the case without AVX-512, where the linear algebra library uses other kernels.
    """
    import torch

    rows, weight = (torch.arange(count * 48.0).sin().view(count, 48) for count in (64, 97))
    whole = torch.nn.functional.linear(rows, weight)
    if not all(torch.equal(torch.nn.functional.linear(rows[:n], weight), whole[:n]) for n in (8, 16, 24)):
        pytest.skip("on this machine the bits of a matrix product depend on its number of rows")


DEFAULT_RECIPE = ("run", "--plugin", "gsm8k-tools")
SHORTENED = ("trainer.steps=12", "evaluation.every=12")
"""Enough steps for the default recipe to learn."""


@pytest.fixture(scope="session")
def shortened_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a shortened run of the default recipe, shared by all workers, read-only."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = shared / "default-recipe"
    with (shared / "default-recipe.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            making = tmp_path_factory.mktemp("making")
            command = [sys.executable, "-m", "rlcore", *DEFAULT_RECIPE, *SHORTENED, f"runs={making}", "name=run"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            making.rename(made)
    return made / "run"


@pytest.fixture(scope="session")
def warmed_up(shortened_run: Path) -> Path:
    """The policy of that run after its warm-up, read-only."""
    return shortened_run / "checkpoints" / "000000" / "model"


@pytest.fixture(scope="session")
def cluster() -> Iterator[RayCluster]:
    """A Ray cluster of two nodes with a core each."""
    cluster = RayCluster()
    try:
        cluster.start(f"--address={cluster.address}")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def other() -> Iterator[OtherHost]:
    try:
        host = OtherHost()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be created: {error}")
    yield host
    host.remove()
