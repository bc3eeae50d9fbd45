"""The lengths of the trajectories of a run in tokens, estimated from its data before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from rlcore.abilities import MultiTurnConfig, TasksConfig, ToolsConfig
from rlcore.errors import DataError, UserError
from rlcore.images import ImageProcessor, image_size

if TYPE_CHECKING:
    from rlcore.session.session import RunSession
    from rlcore.types import Task

SAMPLED_TASKS = 64
"""The number of tasks whose prompts are read."""
EVALUATED_TASKS = 64
"""Tasks of an evaluation whose number is not set."""
ANSWER_TOKENS = 64
"""A typical observation between two turns."""
FORMAT_TOKENS, INSTRUCTION_TOKENS, TOOL_TOKENS = 24, 128, 80
"""The text that a chat format adds to a prompt: always, with any tools, and for each tool."""
CHARACTERS_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """The prompts of some tasks, in tokens."""

    longest: int
    mean: int
    visual: int
    """The most visual tokens of one prompt; they are not among the others."""

    def of(self, tasks: int) -> int:
        """The tokens of the prompts of this many tasks, of which one is the longest."""
        return self.longest + (tasks - 1) * self.mean + tasks * self.visual


def tasks_together(run: RunSession) -> int:
    """The largest number of tasks that are sampled at the same time."""
    options, evaluation = run.resolved.options.get("trainer"), run.config.evaluation
    evaluated = (evaluation.tasks or EVALUATED_TASKS) if evaluation.every or options is None else 0
    return max(options.tasks_per_step if isinstance(options, TasksConfig) else 0, evaluated, 1)


def own_tokens(run: RunSession) -> int:
    """The most tokens of a trajectory after its prompt."""
    turns = max((each.max_turns for each in _environments(run) if isinstance(each, MultiTurnConfig)), default=1)
    return turns * run.config.rollout.max_new_tokens + (turns - 1) * ANSWER_TOKENS


def prompt_lengths(run: RunSession) -> PromptLengths:
    """The prompts of some tasks, from their characters, tools and images; the tools alone without data."""
    try:
        tasks = list(islice(run.dataset.tasks("train") or run.dataset.tasks("evaluation"), SAMPLED_TASKS))
    except UserError:
        tasks = []
    tools = max((len(each.tools) for each in _environments(run) if isinstance(each, ToolsConfig)), default=0)
    added = FORMAT_TOKENS + (INSTRUCTION_TOKENS + tools * TOOL_TOKENS if tools else 0)
    texts = [sum(len(message.text) for message in task.messages) for task in tasks] or [0]
    return PromptLengths(
        longest=added + int(max(texts) / CHARACTERS_PER_TOKEN),
        mean=added + int(sum(texts) / len(texts) / CHARACTERS_PER_TOKEN),
        visual=_visual_tokens(run, tasks),
    )


def _environments(run: RunSession) -> list[object]:
    return [environment.options for environment in run.resolved.environments]


def _visual_tokens(run: RunSession, tasks: Sequence[Task]) -> int:
    """The most visual tokens of one task. Images that cannot be read are reported where they are used."""
    if not any(task.images for task in tasks):
        return 0
    folder = run.model_here()
    processor = (None if folder is None else run.image_processor(folder)) or ImageProcessor()
    most = 0
    for task in tasks:
        tokens = 0
        for data in task.images:
            try:
                rows, columns = processor.tokens(*image_size(data))
                tokens += rows * columns
            except DataError:
                continue
        most = max(most, tokens)
    return most


__all__ = ["PromptLengths", "own_tokens", "prompt_lengths", "tasks_together"]
