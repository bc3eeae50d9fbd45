"""Whether the data has demonstrations. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlcore.abilities import DemonstrationDataset
from rlcore.checks import Finding, failure, failure_of
from rlcore.errors import DataError

from rlcore_trainer.config import WarmupConfig

if TYPE_CHECKING:
    from rlcore.contracts import Dataset
    from rlcore.session.session import RunSession


def check(run: RunSession) -> Iterator[Finding]:
    """Find a warm-up whose data has no demonstration."""
    warmup = run.resolved.options.get("warmup")
    if not isinstance(warmup, WarmupConfig) or not warmup.steps or run.resume_from is not None:
        return
    if not isinstance(run.dataset, DemonstrationDataset):
        return  # a control policy imitates episodes
    try:
        if not demonstrates(run.dataset):
            yield failure("warmup.steps", "the data has no demonstrations", "warmup.steps=0, or other data")
    except DataError as error:
        yield failure_of(error, "warmup.steps")


def demonstrates(dataset: Dataset) -> bool:
    """Whether a dataset has demonstrations. Raises `DataError` if it says itself why it has none."""
    return isinstance(dataset, DemonstrationDataset) and next(iter(dataset.demonstrations(1, seed=0)), None) is not None
