"""The tool set ``zoom``: ``image_zoom_in_tool`` crops a region of a picture."""

from __future__ import annotations
