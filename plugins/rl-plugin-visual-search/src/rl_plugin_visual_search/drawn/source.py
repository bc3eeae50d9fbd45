"""Rows and demonstrations about drawn pictures, as the dataset asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from rlcore import Demonstration

from rl_plugin_visual_search.config import DataConfig
from rl_plugin_visual_search.rows import Row


def drawn_rows(config: DataConfig, split: str) -> Iterable[Row]:
    """The questions of ``train`` or ``evaluation``."""
    raise NotImplementedError


def drawn_demonstrations(config: DataConfig, count: int, *, seed: int) -> Iterable[Demonstration]:
    """Conversations for the warm-up."""
    raise NotImplementedError
