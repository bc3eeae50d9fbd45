"""Whether the data has demonstrations, and whether they fit the environment. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from rlcore.abilities import DemonstrationDataset
from rlcore.checks import Finding, failure, failure_of, warning
from rlcore.errors import DataError
from rlcore.session.model_inputs import tools_of

from rlcore_trainer.config import WarmupConfig

if TYPE_CHECKING:
    from rlcore.contracts import Dataset
    from rlcore.session.session import RunSession


def check(run: RunSession) -> Iterator[Finding]:
    """Find a warm-up whose data has no demonstration, or one with tools that the environment does not have."""
    warmup = run.resolved.options.get("warmup")
    if not isinstance(warmup, WarmupConfig) or not warmup.steps or run.resume_from is not None:
        return
    if not isinstance(run.dataset, DemonstrationDataset):
        return  # a control policy imitates episodes
    try:
        if not demonstrates(run.dataset):
            yield failure("warmup.steps", "the data has no demonstrations", "warmup.steps=0, or other data")
        elif unknown := _unknown_calls(run, run.dataset):
            yield warning(
                f"the demonstrations call {unknown}. The policy would learn calls that fail: "
                "set warmup.steps=0, or give it demonstrations with the tools of the environment"
            )
    except DataError as error:
        yield failure_of(error, "warmup.steps")


def _unknown_calls(run: RunSession, dataset: DemonstrationDataset) -> str:
    """The tools of the first demonstration that no environment has, with those that there are; empty if none."""
    offered = {tool.name for one in run.environments for tool in tools_of(run, one)}
    (first,) = islice(dataset.demonstrations(1, seed=0), 1)
    called = {call.name for message in first.messages for call in message.tool_calls} - offered
    if not called or not offered:
        return ""
    return f"{', '.join(sorted(called))}, which is not among the tools: {', '.join(sorted(offered))}"


def demonstrates(dataset: Dataset) -> bool:
    """Whether a dataset has demonstrations. Raises `DataError` if it says itself why it has none."""
    return isinstance(dataset, DemonstrationDataset) and next(iter(dataset.demonstrations(1, seed=0)), None) is not None
