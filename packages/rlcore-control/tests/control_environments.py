"""Small environments for tests of control."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from rlcore.errors import UserError


class Counting(gymnasium.Env[dict[str, Any], np.ndarray]):
    """Observes seed, step and a random number. Ends after ``limit`` steps. Refuses steps after the option ``wrong``."""

    def __init__(self, limit: int = 5, *, delay_s: float = 0.0, dies_at: int | None = None, truncates: bool = False):
        self.observation_space = gymnasium.spaces.Dict(
            {"state": gymnasium.spaces.Box(-np.inf, np.inf, (3,)), "instruction": gymnasium.spaces.Text(20)}
        )
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,))
        self._limit, self._delay_s, self._dies_at, self._truncates = limit, delay_s, dies_at, truncates

    def _observe(self) -> dict[str, Any]:
        state = np.array([self._seed, self._step, self.np_random.normal()], dtype=np.float32)
        return {"state": state, "instruction": "count"}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self._seed, self._step = seed or 0, 0
        self._refuses = bool((options or {}).get("wrong"))
        return self._observe(), {"instruction": f"count {seed}"}

    def step(self, action: np.ndarray):
        if self._refuses:
            raise UserError("this episode was given a wrong option")
        time.sleep(self._delay_s)
        self._step += 1
        if self._dies_at == self._step and self._seed == 1:
            os._exit(7)
        if self._dies_at == -self._step and self._seed == 1:
            raise RuntimeError("the arm broke")
        ended = self._step >= self._limit
        reward = float(action.sum()) + self._step
        info = {"reward_terms": {"late": float(self._step > 2)}, "is_success": ended}
        return self._observe(), reward, ended and not self._truncates, ended and self._truncates, info


class Hanging(Counting):
    """Never returns from the second step of the episode with seed 1."""

    def step(self, action: np.ndarray):
        if self._seed == 1 and self._step == 1:
            time.sleep(3600)
        return super().step(action)
