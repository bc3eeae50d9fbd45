"""Commands that must succeed, the metrics of the runs that they make, and pages with the results of proofs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.runs.metrics import read_metrics

ROOT = Path(__file__).parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with status 0."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-4000:]
    return done


def rlcore(
    *words: str,
    folder: Path | None = None,
    python: str = sys.executable,
    variables: Mapping[str, str] = ONE_THREAD,
) -> str:
    """Run the command in a process, by default with one thread, and return what it prints."""
    command, environment = [python, "-m", "rlcore", *words], os.environ | variables
    return succeeded(
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    ).stdout


def measured(
    *words: str, out: Path, folder: Path | None = None, variables: Mapping[str, str] = ONE_THREAD
) -> resource.struct_rusage:
    """Run the command with its output in the files ``OUT.out`` and ``OUT.err``, and return what resources it used."""
    files = [out.with_name(f"{out.name}.{end}") for end in ("out", "err")]
    with files[0].open("w", encoding="utf-8") as stdout, files[1].open("w", encoding="utf-8") as stderr:
        command, environment = [sys.executable, "-m", "rlcore", *words], os.environ | variables
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    succeeded(subprocess.CompletedProcess(command, process.returncode, *(one.read_text("utf-8") for one in files)))
    return usage


def metrics(run: Path) -> list[dict[str, Any]]:
    """The metrics of the steps of a run."""
    return read_metrics(run / "metrics.jsonl")


def numbers(run: Path) -> dict[int, dict[str, Any]]:
    """The metrics of a run by step, without time and memory."""
    return {
        row.pop("step"): {k: v for k, v in row.items() if not k.startswith(("time", "memory"))} for row in metrics(run)
    }


def evaluations(run: Path, name: str = "accuracy") -> dict[int, float]:
    """A metric of the evaluations of a run, by step."""
    name = f"evaluation/{name}"
    return {row["step"]: row[name] for row in metrics(run) if name in row}


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A finished run."""

    run: Path
    command: str
    accuracy: Mapping[int, float]
    """Of the evaluations by step."""
    seconds: float

    @property
    def first(self) -> float:
        return self.accuracy[min(self.accuracy)]

    @property
    def last(self) -> float:
        return self.accuracy[max(self.accuracy)]

    def cells(self) -> list[str]:
        """The accuracy at each step."""
        return [f"{self.accuracy[step]:.3f}" for step in sorted(self.accuracy)]


def learned(folder: Path, *words: str, variables: Mapping[str, str] = ONE_THREAD) -> Learned:
    """Run ``rlcore run`` with these words. The run is ``folder/run``."""
    started = time.monotonic()
    rlcore("run", *words, f"runs={folder}", "name=run", variables=variables)
    seconds = time.monotonic() - started
    run, command = folder / "run", " ".join(("rlcore run", *words))
    return Learned(run=run, command=command, accuracy=evaluations(run), seconds=seconds)


def learned_by_seed(
    folder: Path, experiments: Mapping[str, Sequence[str]], seeds: Sequence[int], *words: str
) -> dict[str, dict[int, Learned]]:
    """Run the default recipe of ``gsm8k-tools`` with the words of each experiment and with each seed, one run per core.

    All runs of a seed start from the same warmed-up policy.
    """

    def warmed_up(seed: int) -> Path:
        short = (f"seed={seed}", "trainer.steps=1", "evaluation.every=0", "checkpoint.every=1", "checkpoint.keep=2")
        return learned(folder / f"warm-{seed}", "-p", "gsm8k-tools", *short).run / "checkpoints" / "000000" / "model"

    def one(name: str, seed: int) -> Learned:
        where, start = folder / f"{name.replace(' ', '-')}-{seed}", (f"model={policies[seed]}", "warmup.steps=0")
        return learned(where, "-p", "gsm8k-tools", *start, f"seed={seed}", *experiments[name], *words)

    with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
        policies = dict(zip(seeds, threads.map(warmed_up, seeds), strict=True))
        jobs = {(name, seed): threads.submit(one, name, seed) for name in experiments for seed in seeds}
    return {name: {seed: jobs[name, seed].result() for seed in seeds} for name in experiments}


def commit() -> str:
    """The commit of the working tree."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def write_page(
    name: str, introduction: Sequence[str], columns: Iterable[str | int], rows: Iterable[Iterable[str]]
) -> None:
    """Write a page of ``docs/results``: an introduction, and a table. A number in its columns is a step."""
    head = [f"step {column}" if isinstance(column, int) else column for column in columns]
    table = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    lines = [*introduction, "", table[0], "|" + "---|" * len(head), *table[1:]]
    (ROOT / "docs" / "results" / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
