"""The dataset ``mind2web``."""

from __future__ import annotations

from rlcore_gui.dataset import GuiDataConfig, GuiDataset

from rl_plugin_mind2web.actions import PROMPT


class Mind2WebDataConfig(GuiDataConfig):
    """``[data]`` of ``mind2web``."""

    id: str = "mind2web"
    """Id of the dataset."""


class Mind2WebData(GuiDataset):
    """Tasks from prepared files of `mind2web`."""

    style = PROMPT
    benchmark = "mind2web"


__all__ = ["Mind2WebData", "Mind2WebDataConfig"]
