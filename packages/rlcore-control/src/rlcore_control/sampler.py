"""The sampler ``control``: runs episodes in Gymnasium environments with a model of actions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from rlcore.abilities import KeepsGroups
from rlcore.console.wording import counted
from rlcore.episodes.scoring import Scorer
from rlcore.errors import EnvironmentFailure, UserError
from rlcore.event_loop import EventLoop
from rlcore.timing import collected
from rlcore.types import Group, RolloutRequest, Sampling, Task, Timing, Trajectory
from rlcore_models.device import device_name
from rlcore_models.streaming import fill

from rlcore_control.config import ControlSamplerConfig
from rlcore_control.environments import Environments
from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.loading import load_action_model
from rlcore_control.models.observations import View
from rlcore_control.rollout import INSTRUCTION, Job, Player, jobs_of
from rlcore_control.vector import environments_of_run

if TYPE_CHECKING:
    from rlcore.contracts import WeightSource
    from rlcore.runs.progress import Report
    from rlcore.session.components import RunComponents


class ControlSampler:
    """Collects groups of control trajectories, with the weights of the trainer or of a folder.

    The environments of a name are created at the first request, and kept.
    """

    def __init__(self, components: RunComponents, source: WeightSource, report: Report) -> None:
        """Load the model. In the process of the trainer, it shares the trainer's weights.

        Raises:
            UserError: the model cannot be used.
        """
        self._components, self._report = components, report
        self._config: ControlSamplerConfig = components.options("sampler")
        self._model, self._version = self._loaded(source), source.version
        self._vectors: dict[str, Environments] = {}
        self._loop = EventLoop()
        self._closed = False

    def collect(self, request: RolloutRequest) -> Sequence[Group]:
        """Return scored groups in the order of the request's tasks.

        A temperature of 0 takes the mode of each decision. A failure of an environment is stored in its trajectory.

        Raises:
            UserError: another temperature than 0 or 1, or an environment that does not fit the model.
        """
        temperature = float(request.sampling.get("temperature", self._components.config.rollout.temperature))
        if temperature not in (0.0, 1.0):
            raise UserError(
                "the actions of a control policy are sampled at temperature 1, or greedy at 0",
                found=f"{temperature:g}",
                where="evaluation.temperature" if request.purpose == "evaluation" else "rollout.temperature",
                fix="set it to 0 or 1",
            )
        jobs = list(
            jobs_of(request.tasks, request.group_size, seed=request.seed, purpose=request.purpose, step=request.step)
        )
        phase = "rollout" if request.purpose == "train" else request.purpose
        trajectories: dict[int, Trajectory] = {}
        instructions: dict[str, str] = {}
        sampling = Sampling(max_new_tokens=self._config.max_steps, temperature=temperature, seed=request.seed)
        with self._report.progress(phase, len(jobs), "trajectory") as meter:
            for name in dict.fromkeys(job.task.environment for job in jobs):
                own = [i for i, job in enumerate(jobs) if job.task.environment == name]
                chosen = [jobs[i] for i in own]
                player = Player(
                    self._model,
                    self._vector(name, len(chosen)),
                    max_steps=self._config.max_steps,
                    inputs=self._config.inputs,
                    version=self._version,
                )
                start, ends = time.time(), dict[int, float]()

                def ended(job: int, one: Trajectory, ends: dict[int, float] = ends) -> None:
                    ends[job] = time.time()
                    meter.advance(tokens=one.sampled_tokens)

                played = player.play(chosen, greedy=temperature == 0.0, ended=ended)
                instructions |= player.instructions
                for job, (i, one) in enumerate(zip(own, played, strict=True)):
                    # The environments step together, so a single episode has no time of its own.
                    episode = Timing("episode", "", start, ends.get(job, start) - start)
                    trajectories[i] = one.replace(sampling=sampling, times=(episode,))
        tasks = [_told(task, instructions.get(task.key)) for task in request.tasks]
        request = replace(request, tasks=tasks)
        return self._loop.run(self._scored(request, jobs, [trajectories[i] for i in range(len(jobs))]))

    def update_weights(self, source: WeightSource) -> int:
        """Use the current weights of the policy."""
        if (weights := source.weights()) is None:
            self._model = self._loaded(source)
        else:
            fill(self._model, weights)
        self._version = source.version
        return self._version

    def close(self) -> None:
        """Close all environments. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            for vector in self._vectors.values():
                vector.close()
        finally:
            self._loop.close()

    def _loaded(self, source: WeightSource) -> ActionModel:
        assert source.folder is not None
        weights, device = source.weights(), self._device
        held = None if weights is None else list(weights)
        model = load_action_model(source.folder).to(held[0].tensor.device if held else device)
        if held is not None:
            fill(model, held)
        model.train(False)
        return model

    @property
    def _device(self) -> str:
        return device_name(self._components.config.model.device, gpus=torch.cuda.device_count())

    def _vector(self, name: str, episodes: int) -> Environments:
        """Return the environments of a name, created at the first call, or again if more are needed."""
        count = min(self._config.environments, episodes)
        known = self._vectors.get(name)
        if known is not None and known.num_envs >= count:
            return known
        if known is not None:
            known.close()
        chosen = next(one for one in self._components.environments if one.name == name)
        named = self._components.registry.named("environment", chosen.id)
        try:
            vector, choice = environments_of_run(self._components, name, count, self._config.vector)
        except EnvironmentFailure as failure:
            raise UserError(f"{named} cannot be created", found=str(failure), fix="rlcore doctor") from failure
        self._vectors[name] = vector
        self._check_fits(named, vector)
        self._report.say(f"rollouts  {choice}")
        return vector

    def _check_fits(self, named: str, vector: Environments) -> None:
        view = View.of(vector.observation_space, vector.action_space, self._config.inputs)
        view.check_fits(self._model.spaces, named=named, where=self._components.resolved.origin(("model", "path")))

    async def _scored(
        self, request: RolloutRequest, jobs: Sequence[Job], trajectories: Sequence[Trajectory]
    ) -> list[Group]:
        rollout = self._components.config.rollout
        scorers: Mapping[str, Scorer] = {
            one.name: Scorer(
                self._components.rewards(one.name), timeout_s=rollout.reward_timeout_s, concurrency=rollout.concurrency
            )
            for one in self._components.environments
        }
        groups = []
        for index, task in enumerate(request.tasks):
            scorer = scorers[task.environment]
            siblings = trajectories[index * request.group_size : (index + 1) * request.group_size]
            scored = []
            for one in siblings:
                with collected() as times:
                    found = await scorer.score(one, task)
                scored.append(found.replace(times=(*one.times, *times)))
            group = await scorer.settle(Group(task=task, trajectories=tuple(scored)))
            groups.append(group)
            if isinstance(self._report, KeepsGroups):
                self._report.group_finished(request.purpose, group)
        lost = [one for group in groups for one in group.trajectories if one.reward is None]
        if lost:
            first = next((str(one.failure) for one in lost if one.failure is not None), str(lost[0].stop))
            self._report.say(f"{len(lost)} of {counted(len(jobs), 'trajectory')} were not scored (first: {first})")
        return groups


def _told(task: Task, instruction: str | None) -> Task:
    """The task with the instruction of the environment, for rewards and for people who read the group."""
    return task if instruction is None else replace(task, fields={**task.fields, INSTRUCTION: instruction})


__all__ = ["ControlSampler"]
