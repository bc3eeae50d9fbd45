"""``rlcore data label mind2web``."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore_gui.labels.config import SourceLabelTable
from rlcore_gui.labels.recorded import label_source

from rl_plugin_mind2web.actions import ACTIONS
from rl_plugin_mind2web.source import Mind2WebSource


class Mind2WebLabelConfig(SourceLabelTable):
    """Keys of ``rlcore data label mind2web``. ``source`` are files of episodes."""

    FLAGS = {**SourceLabelTable.FLAGS, "mind2web_data_path": "source"}


def label(config: Mind2WebLabelConfig) -> Mapping[str, object]:
    """Let a teacher label steps of Mind2Web. Raises as `rlcore_gui.labels.recorded.label_source`."""
    return label_source(config, Mind2WebSource(), ACTIONS, screen="web pages")


__all__ = ["Mind2WebLabelConfig", "label"]
