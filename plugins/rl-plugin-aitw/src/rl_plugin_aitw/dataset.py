"""The dataset ``aitw``."""

from __future__ import annotations

from rlcore_gui.dataset import GuiDataConfig, GuiDataset

from rl_plugin_aitw.actions import PROMPT


class AitwDataConfig(GuiDataConfig):
    """``[data]`` of ``aitw``."""

    id: str = "aitw"
    """Id of the dataset."""


class AitwData(GuiDataset):
    """Tasks from prepared files of `aitw`."""

    style = PROMPT
    benchmark = "aitw"


__all__ = ["AitwData", "AitwDataConfig"]
