"""The best step of a run by named metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rlcore.config.schema import MetricChoice
from rlcore.errors import UserError, did_you_mean

from rlcore_trainer.metrics import direction_of

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
