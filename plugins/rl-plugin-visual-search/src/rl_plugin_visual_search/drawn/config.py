"""Configuration of drawn pictures: the part of ``[data]`` that they need."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore import Table

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class DrawnConfig(Table):
    """Keys of drawn pictures, for ``train = "generated"``."""

    drawn: Count = 1024
    """Number of drawn training pictures."""
    held_out: Count = 200
    """Number of drawn held-out pictures."""
    descriptions: Fraction = 0.0
    """Fraction of the demonstrations on drawn pictures that describe a picture or a crop."""
    direct: Fraction = 0.0
    """Fraction of the other demonstrations on drawn pictures that have no tool and guess the answer."""
    guesses: Fraction = 0.0
    """Fraction of the demonstrations with a tool on drawn pictures that crop a random place, instead of where their
    thought says, and guess the answer."""
    blank: bool = False
    """Leave the signs out of drawn pictures, to measure the accuracy without them."""
    drawn_seed: int = 0
    """Seed of the drawn pictures."""


__all__ = ["DrawnConfig"]
