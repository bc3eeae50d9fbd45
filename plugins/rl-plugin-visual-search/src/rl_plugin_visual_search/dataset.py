"""The dataset ``visual-search``."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import Task

from rl_plugin_visual_search.config import DataConfig


class VisualSearchData:
    """Tasks from files, or about drawn pictures."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in a fixed order."""
        raise NotImplementedError
