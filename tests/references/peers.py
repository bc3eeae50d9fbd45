"""Start a peer's interpreter: a project and a lock of its own each, files are the only thing that is exchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
PEERS = ("trl", "verl")


def command(peer: str, script: str, *arguments: str) -> list[str]:
    """The command that runs ``tests/references/PEER/SCRIPT`` in the peer's environment, installed on first use."""
    folder = HERE / peer
    return [_uv(), "run", "--frozen", "--project", str(folder), "python", str(folder / script), *arguments]


def environment() -> dict[str, str]:
    """The process environment without what is this project's own, and without the network for models."""
    own = ("VIRTUAL_ENV", "PYTHONPATH", "UV_PROJECT", "OMP_WAIT_POLICY")
    kept = {key: value for key, value in os.environ.items() if key not in own}
    return kept | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(peer: str, script: str, *arguments: str) -> None:
    """Run a script of a peer to its end; what it prints is shown when it fails."""
    done = subprocess.run(
        command(peer, script, *arguments), env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{peer}: {script} ended with status {done.returncode}\n{done.stdout}{done.stderr}")


def _uv() -> str:
    found = shutil.which("uv") or os.environ.get("UV")
    if found is None:
        raise RuntimeError("uv is needed to run the peers of tests/references, and is not on the PATH")
    return found
