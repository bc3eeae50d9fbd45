"""The environment: a question about pictures, answered in several turns."""

from __future__ import annotations

from rlcore import EpisodeContext, Message, Observation, Step, Task

from rl_plugin_visual_search.config import EnvironmentConfig


class VisualSearch:
    """Shows the pictures and the question, runs the model's code or zooms, and ends with the answer.

    The metrics ``tool_calls``, ``tool_successes``, ``tool_errors``, ``tool_timeouts``, ``tool_resets`` and
    ``tool_images`` of a trajectory count what happened.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    async def reset(self, task: Task, *, seed: int, context: EpisodeContext) -> Observation:
        """Show the messages of the task."""
        raise NotImplementedError

    async def step(self, action: Message) -> Step:
        """Run the code of the turn, or end the episode with its answer."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to free: the context closes the sandbox."""
