"""Reward models: folders of sequence classifiers with one label, which transformers loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.models.config_file import CONFIG, read_config

KIND = "ForSequenceClassification"
"""The end of the names of their classes."""
DEFAULT_LABELS = 2
"""Number of labels of a configuration that lists none."""


def is_reward_model(config: Mapping[str, Any]) -> bool:
    """Return whether ``config.json`` is that of a sequence classifier."""
    listed = config.get("architectures")
    return isinstance(listed, list) and bool(listed) and str(listed[0]).endswith(KIND)


def check_policy(folder: Path) -> None:
    """Check that a folder is not that of a reward model, before a policy is loaded from it.

    Raises:
        UserError: it is that of a reward model.
    """
    if (folder / CONFIG).is_file() and is_reward_model(read_config(folder)):  # an adapter has no config.json
        raise UserError(
            "expected a language model",
            found="a reward model",
            where=str(folder),
            fix=f"use it as a reward (reward.0.id=reward-model reward.0.model={folder}), and give another model=…",
        )


def check_reward_model(folder: Path, *, where: str) -> None:
    """Check that a folder is that of a reward model, before its weights are loaded.

    Raises:
        UserError: it is another model, or its head has another number of labels than 1.
    """
    config = read_config(folder)
    if not is_reward_model(config):
        listed = config.get("architectures")
        raise UserError(
            "expected a reward model, which is a sequence classifier with one label",
            found=str(listed[0])[:80] if isinstance(listed, list) and listed else f"no architectures in {CONFIG}",
            where=f"{where}: {folder}",
            fix="train one with trainer.id=reward-model, and give its run or a folder of its checkpoints",
        )
    labels = config.get("id2label")
    count = len(labels) if isinstance(labels, Mapping) else config.get("num_labels", DEFAULT_LABELS)
    if count != 1:
        raise UserError(
            "a reward model must have one label, which is its score",
            found=f"{count} labels",
            where=str(folder / CONFIG),
            fix="choose a reward model with num_labels=1",
        )
