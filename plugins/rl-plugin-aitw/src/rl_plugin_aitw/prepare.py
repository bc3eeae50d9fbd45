"""``rlcore data prepare aitw``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rlcore_gui.prepare import pipeline
from rlcore_gui.prepare.config import PrepareConfig

from rl_plugin_aitw.source import AitwSource


class AitwPrepareConfig(PrepareConfig):
    """Keys of ``rlcore data prepare aitw``. ``source`` are files of domains with episodes."""

    FLAGS = {**PrepareConfig.FLAGS, "aitw_data_path": "source"}

    coordinates: Literal["relative", "pixels"] = "relative"
    """Whether gestures and boxes of the source are relative to the screen, or in pixels of the screenshot."""


def prepare(config: AitwPrepareConfig) -> Mapping[str, object]:
    """Write prepared files of AITW, and return a summary. Raises as `rlcore_gui.prepare.pipeline.prepare`."""
    return pipeline.prepare(AitwSource(pixels=config.coordinates == "pixels"), config)


__all__ = ["AitwPrepareConfig", "prepare"]
