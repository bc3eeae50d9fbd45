"""The tasks of GUI agents: one recorded step, or a whole episode that the agent answers step by step.

The fields of a task:

- ``steps``: the steps that the agent answers, as plain data (`rlcore_gui.steps.steps_of`). The n-th image of the task
  is the screenshot of the n-th step.
- ``instructions``: the beginning of every prompt of the task, so that later prompts are rendered like the first one.
- ``memory``: where the history in the prompts comes from, as `Memory`.
- ``benchmark``: the name of the data set.
- ``next_step``: the step after the last one of ``steps``, whose screenshot is the last image; None without one, or if
  it is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rlcore.errors import DataError
from rlcore.types import Message, Task

from rlcore_gui.prompts import prompt_message, step_text
from rlcore_gui.steps import STEPS, GuiStep, steps_of

Memory = Literal["none", "actions", "oracle", "own"]
"""The history in the prompts: none, the recorded actions, the summaries that a teacher wrote with knowledge of the
recorded actions, or the agent's own summaries. Scores with different memories are not comparable."""
MEMORIES: tuple[Memory, ...] = get_args(Memory)
INSTRUCTIONS, BENCHMARK, MEMORY, NEXT_STEP = "instructions", "benchmark", "memory", "next_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A step with the encoded image of its screenshot."""

    step: GuiStep
    screenshot: bytes


def step_task(
    shown: Shown,
    *,
    instructions: str,
    benchmark: str = "",
    memory: Memory = "none",
    history: str | None = None,
    following: Shown | None = None,
) -> Task:
    """Return the task to answer one recorded step.

    Args:
        shown: the step
        instructions: the beginning of the prompt, as of `rlcore_gui.prompts.instructions`
        benchmark: the name of the data set
        memory: what ``history`` is
        history: the memory in the prompt; None or an empty text in the first step
        following: the next step of the episode, for rewards that depend on it; None for the last step

    Raises:
        ValueError: ``following`` is of another episode or not later.
    """
    step = shown.step
    if following is not None and (
        following.step.episode_id != step.episode_id or following.step.step_index <= step.step_index
    ):
        raise ValueError(f"{following.step.row_id!r} does not follow {step.row_id!r} in its episode")
    text = step_text(instructions, task=step.task, memory=history)
    return Task(
        id=step.row_id,
        messages=(prompt_message(text, shown.screenshot),),
        fields={
            STEPS: [step.as_fields()],
            INSTRUCTIONS: instructions,
            BENCHMARK: benchmark,
            MEMORY: memory,
            NEXT_STEP: None if following is None else following.step.as_fields(),
        },
        images=(shown.screenshot, *([] if following is None else [following.screenshot])),
    )


def episode_task(shown: Sequence[Shown], *, instructions: str, benchmark: str = "") -> Task:
    """Return the task to answer all recorded steps of an episode, with the agent's own summaries as memory.

    Args:
        shown: the steps with a screenshot, in order
        instructions: as in `step_task`
        benchmark: as in `step_task`

    Raises:
        ValueError: there is no step, or the steps are not of one episode in order.
    """
    steps = [each.step for each in shown]
    if not steps:
        raise ValueError("an episode needs at least one step with a screenshot")
    if len({step.episode_id for step in steps}) > 1:
        raise ValueError("the steps of a task must be of one episode")
    indices = [step.step_index for step in steps]
    if indices != sorted(set(indices)):
        raise ValueError(f"the steps of an episode must be in order, not {indices}")
    text = step_text(instructions, task=steps[0].task, memory=None)
    return Task(
        id=steps[0].episode_id,
        messages=(prompt_message(text, shown[0].screenshot),),
        fields={
            STEPS: [step.as_fields() for step in steps],
            INSTRUCTIONS: instructions,
            BENCHMARK: benchmark,
            MEMORY: "own",
            NEXT_STEP: None,
        },
        images=tuple(each.screenshot for each in shown),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuiTask:
    """A task as environments and rewards read it."""

    steps: tuple[GuiStep, ...]
    instructions: str
    benchmark: str
    memory: Memory
    next_step: GuiStep | None
    images: tuple[bytes, ...]
    """The screenshot of each step, then that of ``next_step``. Empty for a stored task, whose images are elsewhere."""

    @classmethod
    def of(cls, task: Task) -> GuiTask:
        """Read a task.

        Raises:
            DataError: the task has not the fields of a GUI task.
        """
        steps, fields = steps_of(task), task.fields
        instructions, memory, following = (_field(task, name) for name in (INSTRUCTIONS, MEMORY, NEXT_STEP))
        if not isinstance(instructions, str) or memory not in MEMORIES:
            found = f"{INSTRUCTIONS}={instructions!r:.60}, {MEMORY}={memory!r:.60}"
            raise DataError(f"task {task.id!r} has fields of another kind", found=found, fix=_FIX)
        wanted = len(steps) + (following is not None)
        if task.images and len(task.images) != wanted:
            found = f"{len(task.images)} images for {wanted} steps"
            raise DataError(f"task {task.id!r} must have one screenshot for each step", found=found, fix=_FIX)
        return cls(
            steps=steps,
            instructions=instructions,
            benchmark=str(task.fields.get(BENCHMARK, "")),
            memory=memory,
            next_step=None if following is None else GuiStep.from_fields(fields[NEXT_STEP]),
            images=task.images,
        )

    def prompt(self, index: int, *, memory: str | None, screenshots: int | None = 1) -> Message:
        """Return the prompt of a step.

        Args:
            index: of the step; ``len(steps)`` is ``next_step``
            memory: the history summary
            screenshots: number of screenshots, the last of which is that of the step; None shows all earlier ones

        Raises:
            DataError: the task has no images.
        """
        if not self.images:
            raise DataError(f"the task of {self.steps[0].row_id!r} has no screenshots", fix=_FIX)
        step = (*self.steps, self.next_step)[index]
        assert step is not None
        first = 0 if screenshots is None else max(0, index + 1 - screenshots)
        text = step_text(self.instructions, task=step.task, memory=memory)
        return prompt_message(text, self.images[index], earlier=self.images[first:index])


_FIX = "use the dataset of the plugin"


def _field(task: Task, name: str) -> Any:
    if name not in task.fields:
        raise DataError(f"task {task.id!r} has no field {name!r}", found=", ".join(sorted(task.fields)), fix=_FIX)
    return task.fields[name]


__all__ = ["GuiTask", "Memory", "Shown", "episode_task", "step_task"]
