"""Instructions of the bundled tasks: templates with slots for objects and arms, split into seen and unseen ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from rlcore.errors import UserError

Split: TypeAlias = Literal["seen", "unseen"]

SPLITS: tuple[Split, ...] = ("seen", "unseen")
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """Ways to say one thing: sentences of a task, or names of an object. No phrase is in both splits."""

    seen: tuple[str, ...]
    """For training."""
    unseen: tuple[str, ...]
    """For evaluation on new wordings."""

    def of(self, split: Split) -> tuple[str, ...]:
        """The phrases of one split."""
        return self.seen if split == "seen" else self.unseen


def block(colour: str) -> Phrases:
    """Names of a coloured block."""
    names = ("the {0} block", "the {0} cube", "the block in {0}", "the small {0} block")
    unseen = ("the {0} box", "the {0}-coloured cube")
    return Phrases(
        seen=tuple(name.format(colour) for name in names), unseen=tuple(name.format(colour) for name in unseen)
    )


def fill(templates: Phrases, slots: Mapping[str, Phrases], *, split: Split, generator: np.random.Generator) -> str:
    """Draw an instruction: one template, and one phrase of the same split for each of its slots.

    Args:
        templates: sentences with slots such as ``{A}`` (objects) and ``{a}`` (arms).
        slots: what may fill each slot.
        split: ``seen`` or ``unseen``.
        generator: the source of randomness. It advances equally for every template.

    Raises:
        UserError: the split is unknown, or a template has a slot that nothing fills.
    """
    if split not in SPLITS:
        raise UserError("unknown split of instructions", found=split, fix=f"use {' or '.join(SPLITS)}")
    template = _any(templates.of(split), generator)
    chosen = {name: _any(phrases.of(split), generator) for name, phrases in slots.items()}
    for name in _SLOT.findall(template):
        if name not in chosen:
            found, fix = f"{{{name}}} in {template!r}", f"use {', '.join(slots)}"
            raise UserError("an instruction has an unknown slot", found=found, fix=fix)
    text = _SLOT.sub(lambda match: chosen[match[1]], template)
    return text[0].upper() + text[1:]


ARMS: Mapping[str, Phrases] = {
    "left": Phrases(seen=("the left arm", "the left gripper"), unseen=("the left hand",)),
    "right": Phrases(seen=("the right arm", "the right gripper"), unseen=("the right hand",)),
}
"""Names of the arms."""


def _any(phrases: tuple[str, ...], generator: np.random.Generator) -> str:
    return phrases[int(generator.integers(len(phrases)))]
