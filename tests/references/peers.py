"""Start the interpreter of a peer. Each peer has its own project and lock, and only files are exchanged."""

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
    """The process environment without the variables of this project, and offline for models."""
    own = ("VIRTUAL_ENV", "PYTHONPATH", "UV_PROJECT", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    kept = {key: value for key, value in os.environ.items() if key not in own}
    return kept | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def missing(peer: str) -> str:
    """The reason why a peer is not installed, or an empty string."""
    python = HERE / peer / ".venv" / "bin" / "python"
    how = f"uv sync --frozen --project tests/references/{peer}"
    return "" if python.exists() else f"tests/references/{peer} has no environment (several GB); create it with {how}"


def synced(peer: str) -> Path:
    """The interpreter of a peer, installed on first use."""
    folder = HERE / peer
    subprocess.run([_uv(), "sync", "--frozen", "--quiet", "--project", str(folder)], env=environment(), check=True)
    return folder / ".venv" / "bin" / "python"


def run(peer: str, script: str, *arguments: str) -> None:
    """Run a script of a peer. Its output is shown if it fails."""
    done = subprocess.run(
        command(peer, script, *arguments), env=environment(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{peer}: {script} ended with status {done.returncode}\n{done.stdout}{done.stderr}")


def _uv() -> str:
    found = shutil.which("uv") or os.environ.get("UV")
    if found is None:
        raise RuntimeError("the peers in tests/references require uv, which is not on the PATH")
    return found
