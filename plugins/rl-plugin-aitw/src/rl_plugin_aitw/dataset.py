"""The dataset ``aitw``."""

from __future__ import annotations

from rlcore_gui.drawn.config import DrawnDataConfig
from rlcore_gui.drawn.dataset import DrawnDataset

from rl_plugin_aitw.actions import PROMPT
from rl_plugin_aitw.screens import KINDS


class AitwDataConfig(DrawnDataConfig):
    """``[data]`` of ``aitw``."""

    id: str = "aitw"
    """Id of the dataset."""


class AitwData(DrawnDataset):
    """Tasks from prepared files of `aitw`, or on drawn phone screens."""

    style = PROMPT
    kinds = KINDS
    boxes = "none"
    benchmark = "aitw"


__all__ = ["AitwData", "AitwDataConfig"]
