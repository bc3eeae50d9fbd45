"""What a worker does: let the expert try a seed, or let the policy play an episode. Neither depends on former jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rlcore.errors import EnvironmentFailure, UserError

from rl_plugin_robotwin.evaluation.arenas import Arena, Place, open_arena
from rl_plugin_robotwin.evaluation.policies import Policy, open_policy
from rl_plugin_robotwin.evaluation.results import Candidate, Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for all jobs."""

    place: Place
    policy: str
    executed: int | None = None
    """Actions of each chunk that are executed; None for all."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Which observations a model sees; see the key ``sampler.inputs``."""


class Worker:
    """Keeps the environment of the present task and the policy between jobs."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._policy: Policy | None = None
        self._task = ""
        self._arena: Arena | None = None

    def try_seed(self, task: str, seed: int) -> Candidate:
        """Let the expert try a seed. A failure of the environment is the status ``error``."""
        try:
            return self._open(task).expert(seed)
        except EnvironmentFailure as error:
            return Candidate(seed=seed, status="error", error=str(error))

    def play(self, task: str, candidate: Candidate, video: Path | None) -> tuple[Episode, str]:
        """Let the policy play an episode. Return it, and why its video is missing (empty if it is not)."""
        frames: list[Any] = []
        arena = self._open(task)
        if self._policy is None:
            self._policy = open_policy(
                self._setting.policy, executed=self._setting.executed, inputs=self._setting.inputs
            )
        episode = _played(arena, self._policy, candidate, frames if video is not None else None)
        if video is None or not frames:
            return episode, "" if video is None else f"{video}: no picture was drawn"
        rate = int(arena.environment.metadata.get("render_fps", 10))
        from rlcore_control.videos import write_video

        try:
            write_video(video, frames, rate=rate)
        except UserError as error:
            return episode, f"{error.found} ({error.where})"
        return episode, ""

    def close(self) -> None:
        """Free the environment."""
        if self._arena is not None:
            self._arena.close()
        self._arena = None

    def _open(self, task: str) -> Arena:
        if self._arena is None or self._task != task:
            self.close()
            self._arena, self._task = open_arena(task, self._setting.place), task
        return self._arena


def _played(arena: Arena, policy: Policy, candidate: Candidate, frames: list[Any] | None) -> Episode:
    environment = arena.environment
    steps = plan_failures = 0
    began = False
    info: dict[str, Any] = {}
    exception = ""
    try:
        policy.prepare(arena, candidate)
        observation, info = arena.begin(candidate)
        policy.begin(observation, info)
        _watch(environment, frames)
        began = True
        instruction, used, over = str(info["instruction"]), int(info["seed"]), False
        while not over:
            chunk = policy.actions(observation)
            for action in chunk:
                observation, _, terminated, truncated, info = arena.step(action)
                steps += 1
                plan_failures += bool(info.get("plan_failed"))
                _watch(environment, frames)
                over = terminated or truncated
                if over:
                    break
            over = over or len(chunk) == 0
    except UserError as error:
        if not began:  # a mistake in the options, which is the same in every episode
            raise
        exception = str(error)
    except EnvironmentFailure as error:
        exception = f"{type(error).__name__}: {error}"
    except Exception as error:  # of a policy, or of what simulates
        exception = f"{type(error).__name__}: {error}"
    if exception:
        return Episode(
            seed=candidate.seed,
            used=int(info.get("seed", candidate.seed)),
            success=False,
            success_at_end=False,
            steps=steps,
            plan_failures=plan_failures,
            instruction=str(info.get("instruction", "")),
            exception=exception,
        )
    return Episode(
        seed=candidate.seed,
        used=used,
        success=bool(info["success_once"]),
        success_at_end=bool(info.get("success_at_end", info["is_success"])),
        steps=steps,
        plan_failures=plan_failures,
        instruction=instruction,
    )


def _watch(environment: Any, frames: list[Any] | None) -> None:
    if frames is not None and (frame := environment.render()) is not None:
        frames.append(np.asarray(frame))
