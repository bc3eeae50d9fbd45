"""Complete runs of recipes for proofs, which are kept so that another proof reads them or continues them.

They are in ``RLCORE_PROOFS`` (default ``~/.cache/rlcore/proofs``).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from finished_runs import rlcore

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


def commit_of(run: Path) -> str:
    """The commit with which a run was made."""
    commit: str = json.loads((run / "environment.json").read_text(encoding="utf-8"))["commit"]
    return commit[:8]


def with_row(known: Iterable[str], start: str, cells: Iterable[str]) -> list[str]:
    """The rows of a table with a new one, which replaces that with the same start."""
    row = f"{start} {' | '.join(cells)} |"
    return sorted([row, *(line for line in known if not line.startswith(start))])
