"""Behaviour cloning: a warm-up on recorded episodes before reinforcement learning.

Axes: ``T`` the steps of an episode, ``B`` the examples of an update, ``H`` the actions of a decision, ``A`` the numbers
of an action. An example is the observation of a step with the actions from there on, as many as a decision has.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from rlcore.abilities import EpisodeDataset
from rlcore.console.wording import counted
from rlcore.errors import DataError
from rlcore.types import RecordedEpisode, derive_seed
from rlcore_trainer.batching.arrays import numbers_of
from rlcore_trainer.batching.sharding import share
from rlcore_trainer.config import PolicyGradientConfig, WarmupConfig
from rlcore_trainer.controller.schedule import learning_rate
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from torch import Tensor

from rlcore_control.config import inputs_of
from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.normalisation import measure
from rlcore_control.models.observations import STATE, View
from rlcore_control.policy import ControlPolicy
from rlcore_control.rollout import INSTRUCTION

if TYPE_CHECKING:
    from rlcore.runs.progress import Meter
    from rlcore.session.session import RunSession


class Check(Protocol):
    """Stops the run if a number is not finite, see `rlcore_trainer.controller.divergence.require_finite`."""

    def __call__(self, numbers: Mapping[str, float], when: str, *, key: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The examples of all recorded episodes, one for each step, on the CPU."""

    observation: dict[str, Tensor]
    """What the policy sees at each step, without the instruction."""
    instruction: Tensor | None
    """Token ids of the instruction of each episode; None if the policy reads none."""
    episode: Tensor
    """The episode of each step, int64."""
    actions: Tensor
    """The action of each step, in the environment's units."""
    ends: Tensor
    """For each step, the index after the last step of its episode, int64."""

    def __len__(self) -> int:
        return len(self.actions)

    def batch(self, steps_B: Tensor, chunk: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Return observation, ``action_BHA`` and ``valid_BH`` of the examples of some steps."""
        places_BH = steps_B[:, None] + torch.arange(chunk)
        valid_BH = places_BH < self.ends[steps_B][:, None]
        observation = {name: rows[steps_B] for name, rows in self.observation.items()}
        if self.instruction is not None:
            observation[INSTRUCTION] = self.instruction[self.episode[steps_B]]
        # After the end, the last action is repeated, which is not part of the loss.
        return observation, self.actions[places_BH.minimum(self.ends[steps_B][:, None] - 1)], valid_BH


def examples_of(episodes: Iterable[RecordedEpisode], view: View, model: ActionModel) -> Examples:
    """Return the examples of recorded episodes.

    Raises:
        DataError: there is no episode, or one does not have the observations and actions of the environment.
    """
    observations: list[dict[str, Tensor]] = []
    actions: list[Tensor] = []
    instructions: list[Tensor] = []
    for number, episode in enumerate(episodes):
        observation, action_TA = _arrays(episode, view, where=f"recorded episode {number}")
        if not len(action_TA):
            continue
        observations.append(observation)
        actions.append(action_TA)
        if model.instruction_length:
            instructions.append(model.encode_instruction(episode.instruction))
    if not actions:
        raise DataError(
            "the warm-up needs recorded episodes", found="none", where="warmup.steps", fix="set warmup.steps=0"
        )
    lengths = torch.tensor([len(action_TA) for action_TA in actions])
    return Examples(
        observation={name: torch.cat([one[name] for one in observations]) for name in observations[0]},
        instruction=torch.stack(instructions) if instructions else None,
        episode=torch.arange(len(lengths)).repeat_interleave(lengths),
        actions=torch.cat(actions),
        ends=lengths.cumsum(0).repeat_interleave(lengths),
    )


def _arrays(episode: RecordedEpisode, view: View, *, where: str) -> tuple[dict[str, Tensor], Tensor]:
    wanted = [*view.state, *view.cameras.values()]
    missing = [name for name in wanted if name not in episode.observations]
    action_TA = numbers_of(episode.actions).float().flatten(1)
    if missing or action_TA.shape[1] != view.spaces.actions:
        raise DataError(
            f"a recorded episode needs {', '.join(wanted)} and {counted(view.spaces.actions, 'number')} of an action",
            found=f"{', '.join(episode.observations)} and {counted(action_TA.shape[1], 'number')} of an action",
            where=where,
            fix="record the episodes in the environment of the run",
        )
    rows = {name: np.asarray(episode.observations[name]) for name in wanted}
    steps = [view.arrays({name: one[t] for name, one in rows.items()}) for t in range(len(action_TA))]
    names = steps[0] if steps else ()
    return {name: torch.from_numpy(np.stack([step[name] for step in steps])) for name in names}, action_TA


def clone(
    trained: TrainedPolicy,
    run: RunSession,
    config: WarmupConfig,
    trainer: PolicyGradientConfig,
    *,
    seed: int,
    say: Callable[[str], None],
    check: Check,
    meter: Meter | None = None,
    done: int = 0,
    finished: Callable[[int], None] = lambda updates: None,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Imitate recorded episodes, and normalise states and actions with their statistics.

    The random numbers of an update depend only on the seed and its number.

    Args:
        trained: the control policy with its optimiser
        run: provides the recorded episodes, and the environment that they come from
        config: numbers of episodes, updates and examples
        trainer: the largest gradient, and the largest number of examples that are computed at a time
        seed: of the run
        say: prints progress
        check: called with the numbers of each update
        meter: counts the updates
        done: number of updates that an interrupted run made before
        finished: called after each update with the number of updates so far
        stopped: checked after each update; ends the phase early

    Raises:
        DataError: the dataset has no recorded episodes, or they do not fit the environment.
        DivergenceError: from ``check``.
    """
    policy, dataset = cast(ControlPolicy, trained.policy), run.dataset
    if not isinstance(dataset, EpisodeDataset):
        raise DataError(
            "the warm-up of a control policy needs recorded episodes",
            found=f"{type(dataset).__name__}, which provides none",
            where="warmup.steps",
            fix="set warmup.steps=0, or use another data.id",
        )
    model, environment = policy.module, cast(Any, run.environment(run.environments[0].name))
    try:
        inputs = inputs_of(run.resolved.options.get("sampler"))
        view = View.of(environment.observation_space, environment.action_space, inputs)
    finally:
        environment.close()
    with run.progress("demonstrations", config.episodes, "episode") as found:
        episodes = _counting(dataset.episodes(config.episodes, seed=derive_seed(seed, "warmup")), found)
        examples = examples_of(episodes, view, model)
    model.use_statistics(measure(_by_episode(examples)))
    say(f"warm-up   imitates {counted(int(examples.episode[-1]) + 1, 'episode')}, {counted(len(examples), 'step')}")
    policy.train()
    if meter is not None:
        meter.restart()  # some datasets record their episodes for minutes
    for step in range(done + 1, config.steps + 1):
        chosen = random.Random(derive_seed(seed, "cloning", step)).choices(
            range(len(examples)), k=config.demonstrations_per_step
        )
        loss = _gradient(trained, examples, chosen, trainer.max_tokens_per_batch, key=(seed, step))
        rate = learning_rate(
            step, steps=config.steps, peak=config.learning_rate, warmup_steps=config.steps // 10, schedule="cosine"
        )
        norm, _ = trained.optimisation.step(rate, trainer.max_gradient_norm)
        check({"loss": loss, "gradient norm": norm}, f"warm-up step {step}", key="warmup.learning_rate")
        finished(step)
        if meter is not None:
            meter.advance(tokens=len(chosen))
        if step == 1 or step == config.steps or step % max(1, config.steps // 10) == 0:
            say(f"warm-up {step:4d}/{config.steps}  loss {loss:7.4f}")
        if stopped():
            break
    policy.train(False)


def _counting(episodes: Iterable[RecordedEpisode], meter: Meter) -> Iterator[RecordedEpisode]:
    """Yield the episodes, and count each of them: a dataset may record them one by one."""
    for episode in episodes:
        meter.advance()
        yield episode


def _gradient(
    trained: TrainedPolicy,
    examples: Examples,
    chosen: Sequence[int],
    most: int,
    *,
    key: tuple[object, ...],
) -> float:
    """Add the gradient of the mean loss of the chosen examples, of which this process computes its share."""
    policy, total = cast(ControlPolicy, trained.policy), 0.0
    model = policy.module
    mine = share(list(enumerate(chosen)), trained.processes.rank)
    for first in range(0, len(mine), most):
        part = mine[first : first + most]
        observation, action_BHA, valid_BH = examples.batch(torch.tensor([step for _, step in part]), model.chunk)
        generators = [torch.Generator().manual_seed(derive_seed(*key, "cloning", place)) for place, _ in part]
        noise = {
            name: torch.stack(
                [(torch.randn if kind == "normal" else torch.rand)(shape, generator=one) for one in generators]
            ).to(policy.device)
            for name, (shape, kind) in sorted(model.cloning_noise_shapes().items())
        }
        moved = {name: rows.to(policy.device) for name, rows in observation.items()}
        loss_B = policy.root(model.cloning_loss, moved, action_BHA.to(policy.device), valid_BH.to(policy.device), noise)
        loss = loss_B.sum() / len(chosen)
        trained.optimisation.backward(loss)
        total += float(loss.detach())
    return trained.processes.sum({"loss": total})["loss"]


def _by_episode(examples: Examples) -> Iterable[tuple[Tensor, Tensor]]:
    """Yield states [T, S] and actions [T, A] of each episode."""
    lengths = torch.bincount(examples.episode).tolist()
    state = examples.observation.get(STATE)
    states = torch.empty(len(examples), 0) if state is None else state
    yield from zip(torch.split(states, lengths), torch.split(examples.actions, lengths), strict=True)


__all__ = ["Examples", "clone", "examples_of"]
