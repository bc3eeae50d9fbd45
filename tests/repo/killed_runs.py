"""Runs of the real command that are killed, and what has to be equal afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preloaded import become

ENVIRONMENT = Path(__file__).with_name("delayed_environment.py")
NAME = "run"

TABLES = (
    *(f"environment.id={ENVIRONMENT}:Delayed", "data.id=gsm8k-tools", "warmup.demonstrations_per_step=16"),
    *("trainer.tasks_per_step=4", "rollout.group_size=4", "rollout.torch.slots=8"),
    *("trainer.updates_per_rollout=2", "trainer.max_tokens_per_batch=512", "trainer.learning_rate=1e-3"),
    *("algorithm.kl.coefficient=0.01", "algorithm.entropy=0.01"),  # every step has a gradient, rewarded or not
    *("evaluation.every=2", "evaluation.tasks=8", "checkpoint.every=1", "checkpoint.keep=1"),
)
"""The default recipe made small: several micro-batches an update, a checkpoint every step."""
FIRST = ("run", "--plugin", "gsm8k-tools", f"name={NAME}", *TABLES)
IMITATE = (*FIRST, "warmup.steps=60", "trainer.steps=1")
"""A model that calls the calculator more often than not, for other runs to begin with."""
SMALL_RUN = (*FIRST, "warmup.steps=4", "trainer.steps=4")
"""Every phase in a few seconds."""
RESUME = ("run", "--resume", f"runs/{NAME}")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a process ended."""

    status: int
    """As `os.waitstatus_to_exitcode`: negative when a signal ended it."""
    seconds: float
    said: str


def command(arguments: Sequence[str], folder: Path, *, kill_after: float | None = None) -> End:
    """The command in a child of this process, which has imported what takes long; SIGKILL after so many seconds.

    Must be called before this process has started a thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "said.txt"
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        become(arguments, folder, said)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - started
        if ended:
            return End(status=os.waitstatus_to_exitcode(status), seconds=seconds, said=said.read_text("utf-8"))
        if kill_after is not None and seconds >= kill_after:
            os.kill(child, signal.SIGKILL)
            kill_after = None
        time.sleep(0.002)


def content(run: Path) -> dict[str, str]:
    """What two runs that did the same have in common: name and digest of every file, and the lines of the metrics.

    Left out is what tells when and how often it ran: the log, the versions, the resumes, and all times.
    """
    untold = {"output.log", "environment.json", "resumes.jsonl", ".lock", "metrics.jsonl", "config.toml", "asked.toml"}
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name not in untold:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    metrics = run / "metrics.jsonl"
    lines = timeless(metrics) if metrics.exists() else []
    return found | {f"metrics.jsonl:{n}": json.dumps(line) for n, line in enumerate(lines, start=1)}


def timeless(metrics: Path) -> list[dict[str, Any]]:
    """The lines of a ``metrics.jsonl`` without the clock."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return [{key: line[key] for key in line if key.partition("/")[0] != "time"} for line in lines]


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """The names under which two contents differ."""
    return sorted(name for name in expected | found if expected.get(name) != found.get(name))


def config(run: Path) -> str:
    """The configuration of a run, as text."""
    return (run / "config.toml").read_text(encoding="utf-8")


def phase(run: Path) -> str:
    """What a run was doing when it was killed, as its folder tells."""
    if not run.is_dir():
        return "before the run directory"
    if "builtin:" in config(run) and not (run / "model").is_dir():
        return "building the model"
    if any((run / "checkpoints").glob(".*.partial")):
        return "writing a checkpoint"
    if any((run / "rollouts").glob(".*.partial")):
        return "writing a record"
    records = [path.name.partition(".")[0] for path in (run / "rollouts").iterdir()]
    metrics = run / "metrics.jsonl"
    logged = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    if not logged:
        return "warm-up" if not records else "between evaluation and metrics"
    if not any(path.name.isdigit() for path in (run / "checkpoints").iterdir()):
        return "before the first checkpoint"
    if f"evaluation-{logged:06d}" in records:
        return "between evaluation and metrics"
    return f"update of step {logged}" if f"train-{logged:06d}" in records else f"rollout of step {logged}"
