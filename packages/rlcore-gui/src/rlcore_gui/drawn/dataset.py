"""Datasets of prepared files and of drawn screens."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, ClassVar

from pydantic import Field, model_validator
from rlcore.config.schema import Files
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message

from rlcore_gui.answers import render
from rlcore_gui.dataset import GENERATED, TOKENIZER_SAMPLES, GuiDataConfig, GuiDataset, Recorded
from rlcore_gui.drawn.screens import CELLS, ScreenKind
from rlcore_gui.drawn.steps import DESCRIBE, Boxes, DrawnStep, Use, draw_steps
from rlcore_gui.prompts import prompt_message, step_text
from rlcore_gui.tasks import Shown, step_task

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Elements = Annotated[int, Field(ge=1, le=CELLS * CELLS)]
DESCRIPTIONS = 0.5
"""Fraction of the demonstrations on drawn screens that describe the screen instead of acting on it."""


class DrawnDataConfig(GuiDataConfig):
    """``[data]``: prepared files, or drawn screens."""

    train: Files = [GENERATED]
    """``generated``, or files of ``rlcore data prepare`` (.parquet)."""
    instructions: bool = True
    """Whether prompts explain the actions and the form of an answer. A tiny model learns both from demonstrations."""
    screens: list[str] | None = None
    """Kinds of drawn screens, all equally frequent; None uses all of the plugin."""
    elements: tuple[Elements, Elements] = (2, 4)
    """Least and largest number of elements on a drawn screen, of which one is the target."""
    drawn: Count = 4096
    """Number of drawn training screens."""
    held_out: Count = 200
    """Number of drawn held-out screens."""
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


class DrawnDataset(GuiDataset):
    """Tasks from prepared files or on drawn screens. A plugin defines its kinds of screens."""

    kinds: ClassVar[Mapping[str, ScreenKind]]
    """By name."""
    boxes: ClassVar[Boxes]
    """The boxes that drawn steps have."""

    def __init__(self, config: DrawnDataConfig) -> None:
        super().__init__(config)
        self._drawn = config
        if not config.instructions:
            self._instructions = ""

    def generated(self, split: str) -> Iterable[Recorded]:
        """Episodes of one step on drawn screens.

        Raises:
            DataError: a kind of screen does not exist.
        """
        config, held_out = self._drawn, split != "train"
        drawn = self._draw(f"{split} {config.drawn_seed}", split, "held-out" if held_out else "training")
        for one in islice(drawn, config.held_out if held_out else config.drawn):
            yield [Shown(step=one.step, screenshot=one.image)]

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Answers on new drawn screens, of which fractions describe or guess, or those of `GuiDataset` for files."""
        if GENERATED not in self._drawn.train:
            return super().demonstrations(count, seed=seed)
        name = f"demonstrations {self._drawn.drawn_seed} {seed}"
        drawn = self._draw(name, "demonstration", "demonstrations")
        rng = random.Random(f"descriptions {self._drawn.drawn_seed} {seed}")
        return (
            _description(one) if one.description and rng.random() < DESCRIPTIONS else self._demonstration(one)
            for one in islice(drawn, count)
        )

    def texts(self) -> Iterable[str]:
        """Prompts and answers for training a tokenizer."""
        if GENERATED not in self._drawn.train:
            yield from super().texts()
            return
        for one in self.demonstrations(TOKENIZER_SAMPLES, seed=0):
            yield from (message.text for message in one.messages)

    def _draw(self, seed: str, name: str, use: Use) -> Iterator[DrawnStep]:
        return draw_steps(
            random.Random(seed),
            self._kinds(),
            name=name,
            elements=self._drawn.elements,
            use=use,
            blank=self._drawn.blank,
            boxes=self.boxes,
        )

    def _kinds(self) -> Sequence[ScreenKind]:
        names = list(self.kinds) if self._drawn.screens is None else self._drawn.screens
        unknown = [name for name in names if name not in self.kinds]
        if unknown or not names:
            fix = f"use {', '.join(self.kinds)}"
            raise DataError("unknown kind of screen", found=", ".join(unknown) or "none", where="data.screens", fix=fix)
        return [self.kinds[name] for name in names]

    def _demonstration(self, drawn: DrawnStep) -> Demonstration:
        shown = Shown(step=drawn.step, screenshot=drawn.image)
        task = step_task(shown, instructions=self._instructions, memory=self._drawn.memory)
        answer = Message(role="assistant", content=render(drawn.answer, self.style.table))
        return Demonstration(messages=(*task.messages, answer), images=task.images)


def _description(drawn: DrawnStep) -> Demonstration:
    prompt = prompt_message(step_text("", task=DESCRIBE, memory=None), drawn.image)
    answer = Message(role="assistant", content=drawn.description)
    return Demonstration(messages=(prompt, answer), images=(drawn.image,))


__all__ = ["DrawnDataConfig", "DrawnDataset"]
