"""Configuration of drawn screens: the keys that the ``[data]`` tables of the plugins share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from rlcore_gui.dataset import GENERATED, GuiDataConfig
from rlcore_gui.drawn.screens import CELLS
from rlcore_gui.prepare.config import Files

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Elements = Annotated[int, Field(ge=1, le=CELLS * CELLS)]


class DrawnDataConfig(GuiDataConfig):
    """``[data]``: prepared files, or drawn screens."""

    train: Files = [GENERATED]
    """``generated``, or files of ``rlcore data prepare`` (.parquet)."""
    instructions: bool = True
    """Whether prompts explain the actions and the form of an answer. A tiny model learns both from demonstrations."""
    screens: list[str] | None = None
    """Kinds of drawn screens, all equally frequent; None uses all of the plugin."""
    elements: tuple[Elements, Elements] = (1, 3)
    """Least and largest number of elements on a drawn screen, of which one is the target."""
    drawn: Count = 4096
    """Number of drawn training screens."""
    held_out: Count = 200
    """Number of drawn held-out screens."""
    descriptions: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the demonstrations on drawn screens that describe the screen instead of acting on it."""
    guesses: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Fraction of the other demonstrations on drawn screens that act at a random position, instead of where
    their reasoning says."""
    blank: bool = False
    """Leave the elements out of drawn screens, to measure the accuracy without them."""
    drawn_seed: int = 0
    """Seed of the drawn screens."""

    @model_validator(mode="after")
    def _is_ordered(self) -> DrawnDataConfig:
        least, most = self.elements
        if least > most:
            raise ValueError(f"needs elements = [least, largest]; found [{least}, {most}]")
        return self


__all__ = ["DrawnDataConfig"]
