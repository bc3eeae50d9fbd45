"""Data and model folder of the phases, which have neither rows nor a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcore.errors import UserError
from rlcore.types import Task

from rl_plugin_world_model.config import NetworkConfig


class Exploration:
    """No tasks: the phases draw the seeds of their episodes themselves."""

    def __init__(self, config: object = None) -> None:
        pass

    def tasks(self, split: str) -> Sequence[Task]:
        """Return nothing."""
        return []


def build(folder: Path, texts: object, seed: int, config: NetworkConfig) -> None:
    """Refuse to write a folder: the sizes of the networks depend on the environment, so a phase creates them.

    Raises:
        UserError: always. The phases do not call it.
    """
    raise UserError(
        "only the phases can use the networks of the phases",
        found="model.path=builtin:world-model with another trainer",
        fix="trainer.id=world-model-teacher, world-model-student or world-model-adversarial",
    )
