"""The environment: a question and one answer."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.episodes.tool_environment import ToolEnvironment
from rlcore.types import Message, Task

ANSWER = "<answer>{}</answer>"
"""The format of reasoning-gym's system prompts."""


class Question(ToolEnvironment):
    """Presents the question, and ends at the answer."""

    def __init__(self) -> None:
        super().__init__((), max_turns=1)

    def oracle(self, task: Task) -> Sequence[Message]:
        """The generator's own answer."""
        return [answer_message(str(task.fields["answer"]))]


def answer_message(answer: str) -> Message:
    """An answer in the format of the default reward."""
    return Message(role="assistant", content=ANSWER.format(answer))
