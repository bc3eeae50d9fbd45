"""One step of a recorded episode, and its form in the fields of a task.

A task has the steps that the agent must answer in its field ``steps``, in order: one step for a single decision, all
steps with an image for a whole episode. The n-th answer of the agent belongs to the n-th of these steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rlcore.errors import DataError
from rlcore.types import FrozenDict, Task
from rlcore.types.frozen import freeze, thaw

from rlcore_gui.actions import Action, Point

Box = tuple[float, float, float, float]
"""``(y, x, height, width)`` relative to the screen; y and x are its top left corner."""

STEPS = "steps"
"""The field of a task that has its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuiStep:
    """One step of a recorded episode."""

    row_id: str
    """Unique in a data set."""
    episode_id: str
    step_index: int
    """From 0 in the episode. Steps that are not rows count, too."""
    group: str
    """What metrics are grouped by: the domain of AITW, the split or website of Mind2Web."""
    task: str
    """The instruction of the episode."""
    image: Path | None
    """The screenshot; None for a step that is no row, but stays in the history of later steps."""
    image_size: tuple[int, int] | None
    """Width and height of the screenshot in pixels."""
    action: Action
    """The recorded action."""
    boxes: tuple[Box, ...] = ()
    """AITW: all elements of the screen, possibly none. Mind2Web: the target."""
    memory: str | None = None
    """The summary of the previous step, as a teacher wrote it; None without one."""
    is_first: bool = False
    """Whether no earlier step of the episode is a row."""
    is_last: bool = False
    """Whether no later step of the episode is a row."""
    next_row_id: str | None = None
    """The next row of the episode; None for the last one."""
    source: Mapping[str, Any] = field(default_factory=FrozenDict)
    """What matching needs beyond this, as plain data: the touch and lift of a gesture, the original operation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", freeze(self.source))

    def as_fields(self) -> dict[str, Any]:
        """The step as plain data, for the fields of a task. `from_fields` is the inverse."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["image"] = None if self.image is None else str(self.image)
        plain["image_size"] = None if self.image_size is None else list(self.image_size)
        plain["action"] = self.action.as_json()
        plain["boxes"] = [list(box) for box in self.boxes]
        plain["source"] = thaw(self.source)
        return plain

    @classmethod
    def from_fields(cls, plain: Mapping[str, Any]) -> GuiStep:
        """The step of plain data, which may have been stored as JSON.

        Raises:
            DataError: the data is not that of a step.
        """
        try:
            values = {each.name: plain[each.name] for each in fields(cls)}
            action, image, size = values["action"], values["image"], values["image_size"]
            values["image"] = None if image is None else Path(image)
            values["image_size"] = None if size is None else (int(size[0]), int(size[1]))
            values["action"] = Action(name=action["action"], value=action["value"], position=_point(action["position"]))
            values["boxes"] = tuple(_box(box) for box in values["boxes"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(
                "a step must have the fields of a prepared row",
                found=f"{type(error).__name__}: {error}",
                fix="prepare the data again with rlcore data prepare",
            ) from None
        return cls(**values)


def steps_of(task: Task) -> tuple[GuiStep, ...]:
    """The steps that the agent answers in this task, in order.

    Raises:
        DataError: the task has no steps.
    """
    plain = task.fields.get(STEPS)
    if not isinstance(plain, Sequence) or isinstance(plain, str) or not plain:
        raise DataError(
            f"task {task.id!r} must have its steps in the field {STEPS!r}",
            found=f"the fields {sorted(task.fields)}",
            fix="use the dataset of the plugin",
        )
    return tuple(GuiStep.from_fields(step) for step in plain)


def _point(found: Sequence[float] | None) -> Point | None:
    if found is None:
        return None
    x, y = found
    return float(x), float(y)


def _box(found: Sequence[float]) -> Box:
    y, x, height, width = found
    return float(y), float(x), float(height), float(width)
