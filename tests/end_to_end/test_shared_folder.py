"""Processes of a run on machines that do not share the folder of runs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = ("-p", "gsm8k-tools", "strategy.id=ddp", "model.device=cpu", "name=two", "trainer.steps=1", "warmup.steps=2")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_machine_without_the_folder_is_named(tmp_path: Path) -> None:
    """The second process has another file system in place of the folder of runs."""
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("needs mount namespaces")
    (tmp_path / "runs").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    run = [sys.executable, "-m", "rlcore", "run", *WORDS]
    hidden = ["unshare", "--mount", "bash", "-c", 'mount -t tmpfs none runs && exec "$@"', "hidden", *run]
    main, other = (
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, command in enumerate((run, hidden))
    )
    printed = main.communicate(timeout=240)[0]
    other.communicate(timeout=60)
    assert main.returncode == 2, printed
    assert "the machines of a run need a shared disk with the folder of runs" in printed
    assert f"{socket.gethostname()} has no {tmp_path}/runs/two" in printed
    assert not (tmp_path / "runs" / "two").exists()
