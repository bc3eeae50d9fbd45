"""Drawn phone screens: home screens, lists and forms, on which one coloured element must be tapped."""

from __future__ import annotations

from rlcore_gui.drawn.pictures import paint_app, paint_entry, paint_field
from rlcore_gui.drawn.screens import ScreenKind

from rl_plugin_aitw.actions import CLICK

KINDS = {
    kind.name: kind
    for kind in (
        ScreenKind(
            name="home",
            instruction="open the {color} app",
            action=CLICK,
            summary="Opened {color}.",
            size=(42, 42),
            paint=paint_app,
        ),
        ScreenKind(
            name="list",
            instruction="choose the {color} entry",
            action=CLICK,
            summary="Chose {color}.",
            size=(46, 46),
            paint=paint_entry,
        ),
        ScreenKind(
            name="form",
            instruction="tap the {color} field",
            action=CLICK,
            summary="Tapped {color}.",
            size=(48, 36),
            paint=paint_field,
        ),
    )
}
"""By name."""
