"""The reward ``reward-model``: the score of a reward model for the conversation of an episode."""

from __future__ import annotations

import asyncio

from rlcore.errors import UserError
from rlcore.types import RewardResult, Task, Trajectory, to_json

from rl_plugin_reward_model.check import folder_of
from rl_plugin_reward_model.config import RewardModelConfig
from rl_plugin_reward_model.scoring import Scorer, ScoringFailed

MARGIN_S = 10.0
"""Seconds between the deadline of a score and that of the call of the reward."""


class RewardModel:
    """Scores the conversation up to the last message of the assistant.

    Args:
        config: the model

    Attributes:
        reward_timeout_s: the deadline of one call in seconds

    Raises:
        UserError: the folder is not that of a reward model.
    """

    def __init__(self, config: RewardModelConfig) -> None:
        self.reward_timeout_s = config.timeout_s + MARGIN_S
        self._timeout_s = config.timeout_s
        self._scorer = Scorer(folder_of(config.model, where="reward.N.model"), config)

    @property
    def refusal(self) -> UserError | None:
        """The reason why the model cannot be loaded; None if there is none."""
        return self._scorer.refusal

    async def __call__(self, trajectory: Trajectory, task: Task) -> RewardResult:
        """The score. Without one, the trajectory is not scored."""
        messages = list(trajectory.messages)
        while messages and messages[-1].role != "assistant":
            messages.pop()
        if not messages:
            return RewardResult(value=None, error="the episode has no message of the assistant", error_kind="no answer")
        if any(message.images for message in messages):
            return RewardResult(value=None, error="a reward model sees no images", error_kind="images")
        conversation = {"messages": list(map(to_json, messages)), "tools": list(map(to_json, trajectory.tools))}
        try:
            async with asyncio.timeout(self._timeout_s):
                score = await asyncio.wrap_future(self._scorer.submit(conversation))
        except TimeoutError:
            error = f"there is no score within {self._timeout_s:g} s"
            return RewardResult(value=None, error=error, error_kind="time-out")
        except ScoringFailed as failure:
            return RewardResult(value=None, error=str(failure), error_kind="reward model")
        return RewardResult(value=score)

    async def close(self) -> None:
        """End the process. A later call starts a new one."""
        await asyncio.to_thread(self._scorer.close)
