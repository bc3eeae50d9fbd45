"""The dataset ``aitw``, and its commands ``rlcore data prepare`` and ``rlcore data label``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rlcore_gui.drawn.dataset import DrawnDataset
from rlcore_gui.drawn.pictures import paint_app, paint_entry, paint_field
from rlcore_gui.drawn.screens import ScreenKind
from rlcore_gui.labels.config import SourceLabelTable
from rlcore_gui.labels.recorded import label_source
from rlcore_gui.prepare import pipeline
from rlcore_gui.prepare.config import PrepareTable

from rl_plugin_aitw.actions import ACTIONS, CLICK, PROMPT
from rl_plugin_aitw.source import AitwSource

KINDS = {
    kind.name: kind
    for kind in (
        ScreenKind(
            name="home",
            held_out="yellow",
            instruction="open the {color} app",
            action=CLICK,
            summary="Opened {color}.",
            size=(42, 42),
            paint=paint_app,
        ),
        ScreenKind(
            name="list",
            held_out="pink",
            instruction="choose the {color} entry",
            action=CLICK,
            summary="Chose {color}.",
            size=(46, 46),
            paint=paint_entry,
        ),
        ScreenKind(
            name="form",
            held_out="cyan",
            instruction="tap the {color} field",
            action=CLICK,
            summary="Tapped {color}.",
            size=(48, 36),
            paint=paint_field,
        ),
    )
}
"""By name."""


class Data(DrawnDataset):
    """Tasks from prepared files of `aitw`, or on drawn phone screens."""

    style = PROMPT
    kinds = KINDS
    boxes = "none"
    benchmark = "aitw"


class PrepareConfig(PrepareTable):
    """Keys of ``rlcore data prepare aitw``. ``source`` are files of domains with episodes."""

    FLAGS = {**PrepareTable.FLAGS, "aitw_data_path": "source"}

    coordinates: Literal["relative", "pixels"] = "relative"
    """Whether gestures and boxes of the source are relative to the screen, or in pixels of the screenshot."""


def prepare(config: PrepareConfig) -> Mapping[str, object]:
    """Write prepared files of AITW, and return a summary. Raises as `rlcore_gui.prepare.pipeline.prepare`."""
    return pipeline.prepare(AitwSource(pixels=config.coordinates == "pixels"), config)


class LabelConfig(SourceLabelTable):
    """Keys of ``rlcore data label aitw``. ``source`` are files of domains with episodes."""

    FLAGS = {**SourceLabelTable.FLAGS, "aitw_data_path": "source"}

    coordinates: Literal["relative", "pixels"] = "relative"
    """Whether gestures of the source are relative to the screen, or in pixels of the screenshot."""


def label(config: LabelConfig) -> Mapping[str, object]:
    """Let a teacher label steps of AITW, and return a summary. Raises as `rlcore_gui.labels.recorded.label_source`."""
    return label_source(config, AitwSource(pixels=config.coordinates == "pixels"), ACTIONS, screen="an Android phone")


__all__ = ["Data", "LabelConfig", "PrepareConfig", "label", "prepare"]
