"""The reward."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from rlcore import RewardResult, Table, Task, Trajectory


class FinalAnswerConfig(Table):
    """The keys beside ``id`` in ``[[reward]]``. The text below a key is shown with errors."""

    wrong: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The reward of a wrong answer in the right form."""


class FinalAnswer:
    """Compares the text after the last ``####`` with the answer of the task.

    rlcore creates one object per run, and calls it in several threads. A reward without keys is simply a function.
    """

    def __init__(self, config: FinalAnswerConfig) -> None:
        self.wrong = config.wrong

    def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """Score a finished trajectory, also one that was cut short."""
        # Not `get`: without an answer this raises, and the trajectory is not scored. A zero would train the model.
        answer = task.fields["answer"]
        _, mark, given = trajectory.final_response.rpartition("####")
        right = bool(mark) and given.strip() == str(answer)
        return RewardResult(value=1.0 if right else self.wrong if mark else 0.0, components={"has_form": bool(mark)})
