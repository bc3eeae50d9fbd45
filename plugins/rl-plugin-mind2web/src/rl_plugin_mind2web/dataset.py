"""The dataset ``mind2web``, and its commands ``rlcore data prepare`` and ``rlcore data label``."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore_gui.drawn.dataset import DrawnDataset
from rlcore_gui.labels.config import SourceLabelTable
from rlcore_gui.labels.recorded import label_source
from rlcore_gui.prepare import pipeline
from rlcore_gui.prepare.config import PrepareTable

from rl_plugin_mind2web.actions import ACTIONS, PROMPT
from rl_plugin_mind2web.screens import KINDS
from rl_plugin_mind2web.source import Mind2WebSource


class Data(DrawnDataset):
    """Tasks from prepared files of `mind2web`, or on drawn web pages."""

    style = PROMPT
    kinds = KINDS
    boxes = "target"
    benchmark = "mind2web"


class PrepareConfig(PrepareTable):
    """Keys of ``rlcore data prepare mind2web``. ``source`` are files of episodes."""

    FLAGS = {**PrepareTable.FLAGS, "mind2web_data_path": "source"}


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write prepared files of Mind2Web, and return a summary. Raises as `rlcore_gui.prepare.pipeline.prepare`."""
    return pipeline.prepare(Mind2WebSource(), config)


class LabelConfig(SourceLabelTable):
    """Keys of ``rlcore data label mind2web``. ``source`` are files of episodes."""

    FLAGS = {**SourceLabelTable.FLAGS, "mind2web_data_path": "source"}


def label(config: LabelConfig) -> Mapping[str, object]:
    """Let a teacher label steps of Mind2Web. Raises as `rlcore_gui.labels.recorded.label_source`."""
    return label_source(config, Mind2WebSource(), ACTIONS, screen="web pages")


__all__ = ["Data", "LabelConfig", "PrepareConfig", "label", "prepare"]
