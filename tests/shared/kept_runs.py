"""Complete runs of recipes for proofs, which are kept so that another proof reads them or continues them.

They are in ``RLCORE_PROOFS`` (default ``~/.cache/rlcore/proofs``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("RLCORE_PROOFS") or Path.home() / ".cache" / "rlcore" / "proofs") / "diagnosis"
SEEDS = (0, 1, 2)


def trained(plugin: str, seed: int) -> Path:
    """The run of a default recipe. It is made, or continued until its end."""
    return kept(FOLDER / "runs" / f"{plugin}-{seed}", "-p", plugin, f"seed={seed}")


def kept(run: Path, *words: str) -> Path:
    """The run with these arguments in a folder. It is made, or continued until its end."""
    if not (run / "done").exists():
        resumable = (run / "checkpoints" / "last").exists()
        if not resumable:
            shutil.rmtree(run, ignore_errors=True)
        asked = ["--resume", str(run)] if resumable else [*words, f"name={run.name}", f"runs={run.parent}"]
        rlcore("run", *asked)
        (run / "done").touch()
    return run


def rlcore(*words: str) -> str:
    """Run the command with one thread, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "rlcore", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
