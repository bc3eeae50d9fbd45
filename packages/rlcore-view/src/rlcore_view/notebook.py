"""The page of a run below a cell of a notebook."""

from __future__ import annotations

import base64
from pathlib import Path

from rlcore_view.report import report_text

HEIGHT = 720
"""Of the page below a cell, in pixels."""


class Page:
    """A report in a frame: a notebook keeps it, and shows it without a server.

    Args:
        run: the run directory
        trajectories: how many trajectories to keep
    """

    def __init__(self, run: Path, trajectories: int) -> None:
        self.contents, self.html = report_text([run], trajectories=trajectories)

    def _repr_html_(self) -> str:
        # Addresses after "#" work in a frame with an address of its own, and not in one with srcdoc.
        address = f"data:text/html;base64,{base64.b64encode(self.html.encode()).decode()}"
        return f'<iframe src="{address}" title="rlcore" style="width:100%;height:{HEIGHT}px;border:0"></iframe>'


__all__ = ["Page"]
