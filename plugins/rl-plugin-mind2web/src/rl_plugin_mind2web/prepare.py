"""``rlcore data prepare mind2web``."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore_gui.prepare import pipeline
from rlcore_gui.prepare.config import PrepareConfig

from rl_plugin_mind2web.source import Mind2WebSource


class Mind2WebPrepareConfig(PrepareConfig):
    """Keys of ``rlcore data prepare mind2web``. ``source`` are files of episodes."""

    FLAGS = {**PrepareConfig.FLAGS, "mind2web_data_path": "source"}


def prepare(config: Mind2WebPrepareConfig) -> Mapping[str, object]:
    """Write prepared files of Mind2Web, and return a summary. Raises as `rlcore_gui.prepare.pipeline.prepare`."""
    return pipeline.prepare(Mind2WebSource(), config)


__all__ = ["Mind2WebPrepareConfig", "prepare"]
