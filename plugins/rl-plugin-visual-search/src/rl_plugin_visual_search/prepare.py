"""``rlcore data prepare visual-search``."""

from __future__ import annotations

from collections.abc import Mapping

from rl_plugin_visual_search.config import PrepareConfig


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write a parquet file of questions and their pictures, and return a summary."""
    raise NotImplementedError
