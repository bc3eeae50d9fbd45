"""The environment of GUI agents: recorded screens, one answer for each.

A task with one step is answered once, with the memory that the data gives it. In a task with several steps, the agent's
own history summary becomes the memory of the next step. Every step is a segment of its own: the conversation before it
is forgotten except for the summary and, if configured, earlier screenshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field
from rlcore.config.schema import Table
from rlcore.types import Message, Observation, Step, Task

from rlcore_gui.actions import ActionTable
from rlcore_gui.answers import Answer, parse, render
from rlcore_gui.benchmark import Benchmark
from rlcore_gui.steps import GuiStep
from rlcore_gui.tasks import GuiTask


class GuiEnvironmentConfig(Table):
    """``[environment]``: a single step or a recorded episode, as the data set provides it (``data.episodes``)."""

    id: str = ""
    """Id of the environment."""
    screenshots: Annotated[int, Field(ge=1)] | None = 1
    """Number of screenshots in a prompt of an episode: the current one and the latest earlier ones; None keeps all."""


class GuiEnvironment:
    """Recorded screens. The reward of a turn, which ``algorithm.turn_rewards`` can train on, is that of its action."""

    benchmark: ClassVar[Benchmark]

    def __init__(self, config: GuiEnvironmentConfig) -> None:
        self.config = config
        self._task: GuiTask | None = None
        self._turn = 0
        self._memory: str | None = None

    def reset(self, task: Task, *, seed: int) -> Observation:
        """Show the first screen."""
        self._task, self._turn, self._memory = GuiTask.of(task), 0, None
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        """Score the answer, and show the next recorded screen with the summary of the answer as memory.

        An answer without a summary keeps the memory. ``info`` counts unreadable answers by reason, and missing
        summaries, also where no step follows.
        """
        if self._task is None:
            raise RuntimeError("step was called before reset")
        if self._turn >= len(self._task.steps):
            return Step(terminated=True)
        answer = parse(action.text, self.benchmark.table)
        reward = self.benchmark.score(answer.action, self._task.steps[self._turn])
        info = {"unreadable_answers": float(answer.action is None), "missing_summaries": float(answer.summary is None)}
        if answer.unreadable is not None:
            info[f"unreadable/{answer.unreadable.replace(' ', '_')}"] = 1.0
        self._turn += 1
        if self._turn == len(self._task.steps):
            return Step(reward=reward, terminated=True, info=info)
        self._memory = answer.summary or self._memory
        prompt = self._task.prompt(self._turn, memory=self._memory, screenshots=self.config.screenshots)
        return Step(observation=Observation(messages=(prompt,), context=()), reward=reward, info=info)

    def close(self) -> None:
        """Nothing to free."""

    def oracle(self, task: Task) -> Sequence[Message]:
        """The recorded actions, in well-formed answers."""
        return [
            Message(role="assistant", content=ideal_answer(step, number, self.benchmark.table))
            for number, step in enumerate(GuiTask.of(task).steps, start=1)
        ]


def ideal_answer(step: GuiStep, number: int, table: ActionTable) -> str:
    """The text of a well-formed answer with the recorded action of a step, which is the ``number``-th of its task."""
    done = "Nothing is done yet." if number == 1 else f"{number - 1} actions are done."
    answer = Answer(
        progress=done,
        reasoning=f"The next action is {step.action.name}.",
        action=step.action,
        summary=f"Done so far: {number} actions, the last one was {step.action.name}.",
    )
    return render(answer, table)


__all__ = ["GuiEnvironment", "GuiEnvironmentConfig", "ideal_answer"]
