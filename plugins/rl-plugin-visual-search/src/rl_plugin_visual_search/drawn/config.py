"""Configuration of drawn pictures: the part of ``[data]`` that they need."""

from __future__ import annotations

from rlcore import Table


class DrawnConfig(Table):
    """Keys of drawn pictures, for ``train = "generated"``."""
