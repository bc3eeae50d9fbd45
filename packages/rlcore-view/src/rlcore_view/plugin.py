"""The commands of rlcore-view."""

from __future__ import annotations

from rlcore.specs import CommandSpec

rlcore_specs = [
    CommandSpec(id="view", target="rlcore_view.cli:view", summary="Show runs in the browser."),
    CommandSpec(id="report", target="rlcore_view.cli:report", summary="Write a run as one HTML file to send."),
]
