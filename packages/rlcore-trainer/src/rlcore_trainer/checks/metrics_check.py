"""Check the names of the metrics that decide the best step and the early end of a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlcore.checks import Finding, failure

from rlcore_trainer.config import EarlyStop
from rlcore_trainer.metrics import metric_of, misspelt

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

EVALUATION = "evaluation/"


def check(run: RunSession, early_stop: EarlyStop) -> Iterator[Finding]:
    """Find the wrong names of metrics in a configuration."""
    best, every = run.config.checkpoint.best, run.config.evaluation.every
    for key, choice in (("checkpoint.best", best), ("trainer.early_stop", early_stop)):
        name = choice.metric
        if name is None:
            if choice.direction is not None:
                yield failure(f"{key}.direction", f"{key}.metric is not set", "set it")
            continue
        if (near := misspelt(name)) is not None:
            yield failure(f"{key}.metric", "there is no such metric", near)
        elif name.startswith(("time/", "memory/")):
            yield failure(f"{key}.metric", "time and memory differ between machines", "choose another metric")
        elif key == "checkpoint.best" and not name.startswith(EVALUATION):
            reason = "the best checkpoint is chosen at evaluations"
            yield failure(f"{key}.metric", reason, f"a metric that begins with {EVALUATION}")
        elif name.startswith(EVALUATION) and not every:
            yield failure(f"{key}.metric", "evaluation.every is 0", "evaluation.every=10")
        elif choice.direction is None and (known := metric_of(name)) is not None and known.better is None:
            reason = "neither direction of this metric is better in general"
            yield failure(f"{key}.metric", reason, f"{key}.direction=max or min")
    if early_stop.patience and early_stop.metric is None and not every:
        yield failure("trainer.early_stop.patience", "evaluation.every is 0", "evaluation.every=10")
    if not early_stop.patience and early_stop.metric is not None:
        yield failure("trainer.early_stop.metric", "patience is 0", "trainer.early_stop.patience=5")
