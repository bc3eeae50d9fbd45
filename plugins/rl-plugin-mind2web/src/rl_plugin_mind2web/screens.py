"""Drawn web pages: links to click, fields to fill and menus to select from."""

from __future__ import annotations

from rlcore_gui.drawn.pictures import paint_field, paint_link, paint_menu
from rlcore_gui.drawn.screens import ScreenKind

from rl_plugin_mind2web.actions import CLICK, SELECT, TYPE

KINDS = {
    kind.name: kind
    for kind in (
        ScreenKind(
            name="links",
            instruction="click the {color} link",
            action=CLICK,
            summary="Clicked {color}.",
            size=(48, 32),
            paint=paint_link,
        ),
        ScreenKind(
            name="form",
            instruction='type "{value}" into the {color} field',
            action=TYPE,
            summary="Filled {color}.",
            values=("oslo", "lima", "rome", "cairo"),
            size=(48, 36),
            paint=paint_field,
        ),
        ScreenKind(
            name="menus",
            instruction='select "{value}" in the {color} menu',
            action=SELECT,
            summary="Set {color}.",
            values=("one", "two", "three", "four"),
            size=(48, 36),
            paint=paint_menu,
        ),
    )
}
"""By name."""
