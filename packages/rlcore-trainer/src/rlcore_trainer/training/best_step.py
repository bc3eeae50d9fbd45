"""The best step of a run, and the end of a run that no longer improves, both by named metrics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rlcore.config.messages import Problem
from rlcore.config.schema import MetricChoice
from rlcore.errors import UserError, did_you_mean

from rlcore_trainer.config import EarlyStop
from rlcore_trainer.metrics import direction_of, metric_of, misspelt

if TYPE_CHECKING:
    from rlcore.session.session import RunSession

EVALUATION = "evaluation/"


def score(metrics: Mapping[str, float], choice: MetricChoice, default: Sequence[str]) -> tuple[float, ...] | None:
    """Return a score that is higher for a better step; None if a metric is missing or not finite.

    Args:
        metrics: the metrics of the step
        choice: the metric of the configuration
        default: the metrics that decide, most important first, if the configuration names none
    """
    names = [choice.metric] if choice.metric else default
    values = [metrics.get(name, math.nan) for name in names]
    signs = [1.0 if (choice.direction or direction_of(name)) == "max" else -1.0 for name in names]
    found = tuple(sign * value for sign, value in zip(signs, values, strict=True))
    return found if found and all(map(math.isfinite, found)) else None


def require_measured(metrics: Mapping[str, float], choice: MetricChoice) -> None:
    """Check at the first evaluation that the metric that decides the best step exists.

    Raises:
        UserError: it does not; the message lists the metrics that do.
    """
    name = choice.metric
    if name is not None and name not in metrics:
        raise UserError(
            f"the evaluation has no metric {name!r}",
            found=", ".join(sorted(one for one in metrics if one.startswith(EVALUATION))) or "no metrics",
            where="checkpoint.best.metric",
            fix=did_you_mean(name, metrics) or "set checkpoint.best.metric to one of them",
        )


def problems(run: RunSession, early_stop: EarlyStop) -> Iterator[Problem]:
    """Yield the wrong names of metrics in a configuration."""
    best, every = run.config.checkpoint.best, run.config.evaluation.every
    for key, choice in (("checkpoint.best", best), ("trainer.early_stop", early_stop)):
        name = choice.metric
        if name is None:
            if choice.direction is not None:
                yield _problem(run, f"{key}.direction", choice.direction, f"{key}.metric is not set", "set it")
            continue
        if (near := misspelt(name)) is not None:
            yield _problem(run, f"{key}.metric", name, "there is no such metric", near)
        elif name.startswith("time/"):
            yield _problem(run, f"{key}.metric", name, "times differ between machines", "choose another metric")
        elif key == "checkpoint.best" and not name.startswith(EVALUATION):
            reason = "the best checkpoint is chosen at evaluations"
            yield _problem(run, f"{key}.metric", name, reason, f"a metric that begins with {EVALUATION}")
        elif name.startswith(EVALUATION) and not every:
            yield _problem(run, f"{key}.metric", name, "evaluation.every is 0", "evaluation.every=10")
        elif choice.direction is None and (known := metric_of(name)) is not None and known.better is None:
            reason = "neither direction of this metric is better in general"
            yield _problem(run, f"{key}.metric", name, reason, f"{key}.direction=max or min")
    if early_stop.patience and early_stop.metric is None and not every:
        yield _problem(
            run, "trainer.early_stop.patience", early_stop.patience, "evaluation.every is 0", "evaluation.every=10"
        )
    if not early_stop.patience and early_stop.metric is not None:
        yield _problem(
            run, "trainer.early_stop.metric", early_stop.metric, "patience is 0", "trainer.early_stop.patience=5"
        )


def _problem(run: RunSession, path: str, value: object, reason: str, fix: str) -> Problem:
    origin = run.resolved.origin(tuple(path.split(".")))
    return Problem(kind="bad value", path=path, value=str(value), origin=origin, reason=f"{reason}\nfix: {fix}")


__all__ = ["problems", "require_measured", "score"]
