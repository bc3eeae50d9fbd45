"""The dataset ``mind2web``, and its commands ``rlcore data prepare`` and ``rlcore data label``."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore_gui.drawn.dataset import DrawnDataset
from rlcore_gui.drawn.pictures import paint_field, paint_link, paint_menu
from rlcore_gui.drawn.screens import ScreenKind
from rlcore_gui.labels.config import SourceLabelTable
from rlcore_gui.labels.recorded import label_source
from rlcore_gui.prepare import pipeline
from rlcore_gui.prepare.config import PrepareTable

from rl_plugin_mind2web.actions import ACTIONS, CLICK, PROMPT, SELECT, TYPE
from rl_plugin_mind2web.source import Mind2WebSource

KINDS = {
    kind.name: kind
    for kind in (
        ScreenKind(
            name="links",
            held_out="yellow",
            instruction='click the {color} link to "{value}"',
            action=CLICK,
            summary="Clicked {color}.",
            values=("news", "help", "shop", "blog"),
            takes_value=False,
            size=(48, 32),
            paint=paint_link,
        ),
        ScreenKind(
            name="form",
            held_out="pink",
            instruction='fill the {color} field with "{value}"',
            action=TYPE,
            summary="Filled {color}.",
            values=("oslo", "lima", "rome", "cairo"),
            size=(48, 36),
            paint=paint_field,
        ),
        ScreenKind(
            name="menus",
            held_out="cyan",
            instruction='set the {color} menu to "{value}"',
            action=SELECT,
            summary="Set {color}.",
            values=("one", "two", "three", "four"),
            size=(48, 36),
            paint=paint_menu,
        ),
    )
}
"""By name. All tasks have the same number of tokens, because rotary positions are relative: a tiny model that learns a
colour at one distance from the picture does not know it at another. With tasks of different lengths, the policy learned
the colours of each kind alone, with the same seed: the accuracy rose to 0.75 in training, and to 0.29 on held-out
screens, instead of 0.945."""


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
