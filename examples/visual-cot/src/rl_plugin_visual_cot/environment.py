"""The environment: one question about a picture and one answer."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore import Message, Observation, Step, Task

from rl_plugin_visual_cot.config import EnvironmentConfig
from rl_plugin_visual_cot.prompts import answered


class VisualCot:
    """Shows the messages of the task and ends after the first answer."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    def reset(self, task: Task, *, seed: int) -> Observation:
        """Show the picture and the question."""
        return Observation(messages=task.messages)

    def step(self, action: Message) -> Step:
        """End the episode."""
        return Step(terminated=True)

    def close(self) -> None:
        """Nothing to free."""

    def oracle(self, task: Task) -> Sequence[Message]:
        """The answer of the row, with a chain of thought that concludes with it."""
        answer = str(task.fields["answer"])
        return [answered(f"Conclusion: {answer}.", answer)]
