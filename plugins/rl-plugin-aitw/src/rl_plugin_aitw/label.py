"""``rlcore data label aitw``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rlcore_gui.labels.config import SourceLabelTable
from rlcore_gui.labels.recorded import label_source

from rl_plugin_aitw.actions import ACTIONS
from rl_plugin_aitw.source import AitwSource


class AitwLabelConfig(SourceLabelTable):
    """Keys of ``rlcore data label aitw``. ``source`` are files of domains with episodes."""

    FLAGS = {**SourceLabelTable.FLAGS, "aitw_data_path": "source"}

    coordinates: Literal["relative", "pixels"] = "relative"
    """Whether gestures of the source are relative to the screen, or in pixels of the screenshot."""


def label(config: AitwLabelConfig) -> Mapping[str, object]:
    """Let a teacher label steps of AITW, and return a summary. Raises as `rlcore_gui.labels.recorded.label_source`."""
    return label_source(config, AitwSource(pixels=config.coordinates == "pixels"), ACTIONS, screen="an Android phone")


__all__ = ["AitwLabelConfig", "label"]
