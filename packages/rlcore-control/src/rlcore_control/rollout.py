"""Episodes of a model of actions in control environments, as trajectories.

Axes: ``B`` the episodes that decide together, ``H`` the actions of a decision, ``A`` the numbers of an action.

All numbers of an episode depend only on its keys: the seed of its reset, and the noise of each decision, which is drawn
from a generator of its own. Decisions are computed in blocks of a fixed size, because a row of a matrix product may
differ between sizes. So an episode is the same whichever other episodes run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from rlcore.errors import EnvironmentFailure
from rlcore.types import (
    Boundary,
    Failure,
    Logprobs,
    LossMask,
    NumberArray,
    Segment,
    Stop,
    Task,
    TokenIds,
    Trajectory,
    Turn,
    derive_seed,
)
from rlcore.types.checking import is_finite
from torch import Tensor

from rlcore_control.config import Inputs
from rlcore_control.environments import Array, Environments, Observation, Outcome, Start, check_finite
from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.observations import View
from rlcore_control.playing import Reset, play
from rlcore_control.policy import ACTION, OBSERVATION
from rlcore_control.vector import bounded

BLOCK = 16
"""Number of decisions that are computed at a time on a CPU."""
INSTRUCTION = "instruction"
EXECUTED = "executed"
"""Array of a segment: the actions [H, A] of each decision in the environment's units, from which it can be replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One episode to play."""

    task: Task
    sibling: int
    seed: int
    """Seed of the environment's reset, equal for the siblings of a group."""
    key: tuple[object, ...]
    """Key of the noise of its decisions."""
    options: dict[str, Any] | None = None
    """Options of the environment's reset."""


@dataclass(slots=True)
class _Episode:
    """An episode in progress."""

    job: Job
    view: View
    observation: Mapping[str, Array]
    instruction: Array | None
    rows: list[Mapping[str, Array]] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    planned: list[Array] = field(default_factory=list)
    """The actions of the latest decision that were not executed yet."""
    steps: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    """Sums of the environment's reward terms."""
    last: Outcome | None = None

    def seen(self) -> dict[str, Array]:
        """The observation of the next decision."""
        return {**self.observation, **({} if self.instruction is None else {INSTRUCTION: self.instruction})}

    def take(self, outcome: Outcome) -> None:
        """Add a step of the environment to the latest decision."""
        check_finite({"reward": outcome.reward})
        self.observation, self.last = self.view.arrays(outcome.observation), outcome
        self.steps += 1
        self.rewards[-1] += outcome.reward
        for name, value in dict(outcome.info.get("reward_terms", {})).items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def metrics(self) -> dict[str, float]:
        """The return, the number of steps, the reward terms, and the success if the environment reports one."""
        found = {"step_reward": sum(self.rewards), "steps": float(self.steps)}
        if self.last is not None and self.last.success is not None:
            found["success"] = float(self.last.success)
        found |= {f"reward_terms/{name}": value for name, value in sorted(self.sums.items())}
        return {name: value for name, value in found.items() if is_finite(value)}


class Player:
    """Plays episodes with a model.

    Args:
        model: the policy, in evaluation mode
        environments: environments with the same spaces
        max_steps: an episode is truncated after this many steps of the environment
        inputs: which observations the model sees; see `View.of`
        version: number of updates applied to the weights of the model

    Attributes:
        instructions: what the environments told to do, by the key of the task; equal for the siblings of a group
    """

    def __init__(
        self,
        model: ActionModel,
        environments: Environments,
        *,
        max_steps: int,
        inputs: Inputs | None = None,
        version: int = 0,
    ) -> None:
        self._model, self._environments, self._max_steps, self._version = model, environments, max_steps, version
        self._view = View.of(environments.observation_space, environments.action_space, inputs)
        self._shape = environments.action_space.shape or ()
        self._device = next(model.parameters()).device
        self.instructions: dict[str, str] = {}

    def play(
        self, jobs: Sequence[Job], *, greedy: bool, ended: Callable[[int, Trajectory], None] = lambda job, one: None
    ) -> list[Trajectory]:
        """Play an episode of each job, and return their trajectories in order, without scores.

        Args:
            jobs: the episodes
            greedy: whether decisions are the mode of the policy
            ended: called with the index of a job and its trajectory when it ends
        """
        done: dict[int, Trajectory] = {}

        def finish(index: int, result: _Episode | EnvironmentFailure) -> None:
            done[index] = (
                _failed(jobs[index], result)
                if isinstance(result, EnvironmentFailure)
                else _trajectory(result, self._version)
            )
            ended(index, done[index])

        play(
            self._environments,
            [Reset(job.seed, job.options) for job in jobs],
            begin=lambda index, start: self._begun(jobs[index], start),
            decide=partial(self._decide, greedy=greedy),
            finish=finish,
            max_steps=self._max_steps,
            block=BLOCK if self._device.type == "cpu" else self._environments.num_envs,
        )
        return [done[i] for i in range(len(jobs))]

    def _begun(self, job: Job, start: Start) -> _Episode:
        text = str(start.info.get(INSTRUCTION, job.task.fields.get(INSTRUCTION, "")))
        if text:
            self.instructions[job.task.key] = text
        instruction = self._model.encode_instruction(text).numpy() if self._model.instruction_length > 0 else None
        return _Episode(job, self._view, self._view.arrays(start.observation), instruction)

    def _bounded(self, action: Array) -> Array:
        return bounded(action.reshape(self._shape), self._environments.action_space)

    @torch.no_grad()
    def _decide(self, episodes: Sequence[_Episode], *, greedy: bool) -> None:
        """Make the next decision of each episode, and plan its actions."""
        seen = [episode.seen() for episode in episodes]
        size = BLOCK if self._device.type == "cpu" else len(episodes)
        for first in range(0, len(episodes), size):
            block = range(first, min(first + size, len(episodes)))
            filled = [*block, *[block[0]] * (size - len(block))]
            observation = {
                name: torch.from_numpy(np.stack([seen[i][name] for i in filled])).to(self._device) for name in seen[0]
            }
            # The noise does not matter where it is not used, but the choice must have the right form.
            decision = self._model.sample(observation, self._noise([episodes[i] for i in filled]))
            action_BHA = self._model.mode(observation) if greedy else decision.action_BHA
            choice = {name: value.cpu().numpy() for name, value in decision.choice.items()}
            logprobs = decision.logprob_B.double().tolist()
            for place, i in enumerate(block):
                rows = {f"{OBSERVATION}{name}": value for name, value in seen[i].items()}
                rows |= {f"{ACTION}{name}": value[place] for name, value in choice.items()}
                action_HA = action_BHA[place].cpu().numpy()
                episodes[i].planned = [self._bounded(action) for action in action_HA]
                episodes[i].rows.append({**rows, EXECUTED: action_HA})
                episodes[i].logprobs.append(logprobs[place])
                episodes[i].rewards.append(0.0)

    def _noise(self, episodes: Sequence[_Episode]) -> dict[str, Tensor]:
        """Draw the noise of the next decision of each episode, from a generator of its own."""
        shapes = self._model.noise_shapes()
        drawn: dict[str, list[Tensor]] = {name: [] for name in shapes}
        for episode in episodes:
            seed = derive_seed(*episode.job.key, len(episode.rows))
            generator = torch.Generator().manual_seed(seed)
            for name, (shape, distribution) in sorted(shapes.items()):
                draw = torch.randn if distribution == "normal" else torch.rand
                drawn[name].append(draw(shape, generator=generator))
        return {name: torch.stack(rows).to(self._device) for name, rows in drawn.items()}


def _trajectory(episode: _Episode, version: int) -> Trajectory:
    """The trajectory of an episode. One that was cut short has a row for the state in which it was left."""
    assert episode.last is not None
    decisions, ended = len(episode.rows), episode.last.terminated
    rows = list(episode.rows)
    turns = [
        Turn(kind="policy", start=i, end=i + 1, messages=(), reward=reward, policy_version=version)
        for i, reward in enumerate(episode.rewards)
    ]
    if not ended:
        left = {f"{OBSERVATION}{name}": value for name, value in episode.seen().items()}
        rows.append({name: left.get(name, np.zeros_like(value)) for name, value in rows[-1].items()})
        turns.append(Turn(kind="observation", start=decisions, end=decisions + 1, messages=()))
    segment = Segment(
        token_ids=TokenIds([0] * len(rows)),
        loss_mask=LossMask([i < decisions for i in range(len(rows))]),
        logprobs=Logprobs([*episode.logprobs, *[0.0] * (len(rows) - decisions)]),
        turns=tuple(turns),
        arrays={name: NumberArray.of(np.stack([row[name] for row in rows])) for name in rows[0]},
    )
    return Trajectory(
        task_id=episode.job.task.id,
        sibling=episode.job.sibling,
        segments=(segment,),
        stop=Stop.DONE if ended else Stop.MAX_TURNS,
        metrics=episode.metrics(),
    )


def _failed(job: Job, failure: EnvironmentFailure) -> Trajectory:
    return Trajectory(
        task_id=job.task.id,
        sibling=job.sibling,
        stop=Stop.CANCELLED,
        failure=Failure(boundary=Boundary.ENVIRONMENT, message=str(failure)),
    )


def jobs_of(tasks: Sequence[Task], group_size: int, *, seed: int, purpose: str, step: int) -> Iterator[Job]:
    """Yield the episodes of a request, in order.

    A task may have these fields: ``seed``, the seed of the environment's reset; ``options``, the options of the reset;
    ``instruction``, which the environment's own ``info["instruction"]`` replaces.
    """
    for task in tasks:
        given = task.fields.get("seed")
        own = derive_seed(seed, "environment", step, task.key) if given is None else int(given)
        options = task.fields.get("options")
        for sibling in range(group_size):
            yield Job(
                task=task,
                sibling=sibling,
                seed=own % 2**32,
                key=(seed, purpose, step, task.key, sibling),
                options=None if options is None else dict(options),
            )


__all__ = ["Job", "Observation", "Player", "jobs_of"]
