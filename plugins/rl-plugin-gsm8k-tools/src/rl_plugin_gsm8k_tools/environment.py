"""The environment: a word problem, tools, and a number of turns."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.tool_environment import ToolEnvironment
from rlcore.types import Message, Task

from rl_plugin_gsm8k_tools.calculator import calculator
from rl_plugin_gsm8k_tools.config import EnvironmentConfig


class Gsm8kTools(ToolEnvironment):
    """Shows the problem, answers tool calls, ends at the first answer without a call."""

    def __init__(self, config: EnvironmentConfig) -> None:
        super().__init__(config.tools, max_turns=config.max_turns, system_prompt=config.system_prompt)

    def oracle(self, task: Task) -> Sequence[Message]:
        """Perfect play of a task: the demonstration that the row carries, or else the expected answer.

        Rows that demand a tool's use are solved by calling one first.
        """
        from rl_plugin_gsm8k_tools.demonstrations import call_message, final_message, messages_of

        if (told := messages_of(task.fields)) is not None and calculator.name in self.tools:
            return [message for message in told if message.role == "assistant"]
        answer = final_message(str(task.fields.get("answer", "")))
        if calculator.name not in self.tools or self.max_turns < 2:
            return [answer]
        return [call_message("", "1 + 1", id="call_0"), answer]
