"""Find conflicting settings of a run on pairs of answers before anything loads. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlcore.abilities import ConversationDataset, PreferenceDataset
from rlcore.checks import Finding, failure
from rlcore.errors import DataError

from rlcore_trainer.algorithms.preferences.config import PreferenceConfig
from rlcore_trainer.checks import lora_check
from rlcore_trainer.config import PairsConfig
from rlcore_trainer.distributed.config import DataParallelConfig
from rlcore_trainer.supervised.check import of_evaluation, of_passes

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def check(run: RunSession) -> Iterator[Finding]:
    """Find conflicting settings, and data with nothing to train on or to evaluate.

    Raises:
        DataError: the dataset is of the wrong kind.
    """
    config: PairsConfig = run.options("trainer")
    found = list(of_passes(run, config))
    if isinstance(table := run.resolved.options.get("preference"), PreferenceConfig):
        run.load("preference_loss", table.loss.id)
        found += lora_check.check(run, reinforcement=False)
    strategy = run.options("strategy")
    if isinstance(strategy, DataParallelConfig) and strategy.sequence_parallel > 1:
        reason = "the answers of a pair are compared in one process"
        found.append(failure("strategy.sequence_parallel", reason, "1"))
    yield from found
    if all(one.status != "fail" for one in found):
        yield from _of_data(run, config)


def _of_data(run: RunSession, config: PairsConfig) -> Iterator[Finding]:
    dataset = run.dataset
    if not isinstance(dataset, PreferenceDataset):
        conversations = isinstance(dataset, ConversationDataset)
        raise DataError(
            f"trainer.id={run.config.trainer.id} needs a dataset of preferences",
            found=f"{type(dataset).__name__}, which has {'conversations' if conversations else 'none'}",
            where=run.resolved.origin(("data", "id")),
            fix="data.id=preferences, which reads files with a chosen and a rejected answer to each prompt"
            + (", or trainer.id=sft for conversations" if conversations else ""),
        )
    if not dataset.preferences("train"):
        yield failure("data.train", "the data has no training preferences")
    evaluated = bool(config.held_out or dataset.preferences("evaluation"))
    yield from of_evaluation(run, config, "pairs", evaluated=evaluated)
