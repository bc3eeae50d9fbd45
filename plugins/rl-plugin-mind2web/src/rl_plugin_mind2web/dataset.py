"""The dataset ``mind2web``."""

from __future__ import annotations

from rlcore_gui.drawn.config import DrawnDataConfig
from rlcore_gui.drawn.dataset import DrawnDataset

from rl_plugin_mind2web.actions import PROMPT
from rl_plugin_mind2web.screens import KINDS


class Mind2WebDataConfig(DrawnDataConfig):
    """``[data]`` of ``mind2web``."""

    id: str = "mind2web"
    """Id of the dataset."""


class Mind2WebData(DrawnDataset):
    """Tasks from prepared files of `mind2web`, or on drawn web pages."""

    style = PROMPT
    kinds = KINDS
    boxes = "target"
    benchmark = "mind2web"


__all__ = ["Mind2WebData", "Mind2WebDataConfig"]
