"""Kill runs of the real command, and compare their results."""

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
    *("algorithm.kl.coefficient=0.01", "algorithm.entropy=0.01"),  # every step has a gradient, also without rewards
    *("evaluation.every=2", "evaluation.tasks=8", "checkpoint.every=1", "checkpoint.keep=1"),
)
"""A small version of the default recipe: several micro-batches per update, a checkpoint at every step."""
FIRST = ("run", "--plugin", "gsm8k-tools", f"name={NAME}", *TABLES)
IMITATE = (*FIRST, "warmup.steps=60", "trainer.steps=1")
"""Makes a model that calls the calculator in most responses, as the start of other runs."""
SMALL_RUN = (*FIRST, "warmup.steps=4", "trainer.steps=4")
"""All phases in a few seconds."""
RESUME = ("run", "--resume", f"runs/{NAME}")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a process ended."""

    status: int
    """As in `os.waitstatus_to_exitcode`: negative after a signal."""
    seconds: float
    output: str


def command(arguments: Sequence[str], folder: Path, *, kill_after: float | None = None) -> End:
    """Run the command in a fork of this process, and send SIGKILL after ``kill_after`` seconds.

    This process must have no other threads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "output.txt"
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        become(arguments, folder, log)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - started
        if ended:
            return End(status=os.waitstatus_to_exitcode(status), seconds=seconds, output=log.read_text("utf-8"))
        if kill_after is not None and seconds >= kill_after:
            os.kill(child, signal.SIGKILL)
            kill_after = None
        time.sleep(0.002)


def content(run: Path) -> dict[str, str]:
    """The reproducible content of a run: name and digest of every file, and the lines of the metrics.

    The log, the versions, the list of resumes, what resumes moved aside and all times are excluded.
    """
    ignored = {"output.log", "environment.json", "resumes.jsonl", ".lock", "metrics.jsonl", "config.toml", "asked.toml"}
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name not in ignored and not name.startswith("superseded/") and ".times." not in name:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    metrics = run / "metrics.jsonl"
    lines = timeless(metrics) if metrics.exists() else []
    return found | {f"metrics.jsonl:{n}": json.dumps(line) for n, line in enumerate(lines, start=1)}


def timeless(metrics: Path) -> list[dict[str, Any]]:
    """The lines of a ``metrics.jsonl`` without time and memory."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return [{key: line[key] for key in line if key.partition("/")[0] not in ("time", "memory")} for line in lines]


def records(run: Path) -> set[str]:
    """Every record of a run, including those that resumes moved aside: digests of rollouts, and lines of metrics."""
    rollouts = {hashlib.sha256(path.read_bytes()).hexdigest() for path in run.rglob("*.jsonl.gz")}
    return rollouts | {line for path in run.rglob("metrics.jsonl*") for line in path.read_text("utf-8").splitlines()}


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """The names of the entries that differ."""
    return sorted(name for name in expected | found if expected.get(name) != found.get(name))


def config(run: Path) -> str:
    """The configuration of a run, as text."""
    return (run / "config.toml").read_text(encoding="utf-8")


def phase(run: Path) -> str:
    """The phase in which a run was killed, inferred from its folder."""
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
