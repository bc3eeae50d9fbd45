"""The explorer: its actions, and PPO on the actions that it took.

Axes: B episodes, T steps, A values of an action, M the memory, N valid steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from rlcore.types import derive_seed
from rlcore_control.episodes import Choice, Recorder
from rlcore_trainer.algorithms.interface import Advantage, AdvantageInputs, Loss, LossInputs
from rlcore_trainer.distributed.strategy import Strategy
from torch import Tensor

from rl_plugin_world_model.config import ExplorerConfig, NetworkConfig
from rl_plugin_world_model.models.networks import Explorer, entropy_estimate, log_probability
from rl_plugin_world_model.sequences import Interface, Sequences


class Acting:
    """Chooses actions of an explorer. Noise is keyed by seed, episode and step."""

    def __init__(self, explorer: Explorer, network: NetworkConfig, interface: Interface, seed: int) -> None:
        self._explorer, self._network, self._interface, self._seed = explorer, network, interface, seed
        self._memory: dict[int, Tensor] = {}
        self._previous: dict[int, np.ndarray[Any, Any]] = {}

    @torch.no_grad()
    def __call__(self, recorders: Sequence[Recorder]) -> list[Choice]:
        """Return the actions of episodes in progress."""
        explorer = self._explorer
        device = explorer.log_std_A.device
        for one in recorders:
            if one.steps == 0:
                self._memory[one.number] = explorer.start(1, device)[0]
                self._previous[one.number] = np.zeros(explorer.log_std_A.shape[0], np.float32)
        pictures = [[one.observation[name] for name in self._network.explorer_cameras] for one in recorders]
        state = np.concatenate([self._interface.state(one.observation, 1) for one in recorders])
        previous = np.stack([self._previous[one.number] for one in recorders])
        remembered = explorer.remember(
            torch.from_numpy(np.array(pictures)).to(device)[:, None],
            torch.from_numpy(state).to(device)[:, None],
            torch.from_numpy(previous).to(device)[:, None],
            torch.stack([self._memory[one.number] for one in recorders]),
            torch.ones(len(recorders), 1, dtype=torch.bool, device=device),
        )
        mean, std = explorer.policy(remembered.last_BM)
        noise = torch.stack([self._noise(one, mean.shape[-1]) for one in recorders]).to(device)
        sample = mean + std * noise
        logprob, value = log_probability(sample, mean, std), explorer.value(remembered.last_BM)[:, 0]
        choices = []
        for i, one in enumerate(recorders):
            self._memory[one.number] = remembered.last_BM[i]
            action = self._interface.action(torch.tanh(sample[i]).cpu().numpy())
            self._previous[one.number] = self._interface.unit(action[None])[0]
            stored = {"sample": sample[i], "logprob": logprob[i], "value": value[i]}
            choices.append(Choice(action, {name: number.cpu().numpy() for name, number in stored.items()}))
        return choices

    def _noise(self, recorder: Recorder, size: int) -> Tensor:
        seed = derive_seed(self._seed, "explorer", recorder.number, recorder.steps)
        return torch.randn(size, generator=torch.Generator().manual_seed(seed))


class RandomActing:
    """Uniformly random actions, keyed like those of the explorer. Each is held for ``hold`` steps."""

    def __init__(self, interface: Interface, seed: int, scale: float, hold: int) -> None:
        self._interface, self._seed, self._scale, self._hold = interface, seed, scale, hold

    def __call__(self, recorders: Sequence[Recorder]) -> list[Choice]:
        """Return the actions of episodes in progress."""
        choices = []
        for one in recorders:
            generator = np.random.default_rng(derive_seed(self._seed, "random", one.number, one.steps // self._hold))
            unit = generator.uniform(-self._scale, self._scale, self._interface.sizes.action)
            choices.append(Choice(self._interface.action(unit)))
        return choices


class Objective(NamedTuple):
    """What an update minimises and maximises."""

    loss: Tensor
    """The losses of policy, values and memory."""
    entropy: Tensor
    """This process's share of the mean entropy, in nats per dimension of the action."""


class ExplorerTraining:
    """PPO with a recurrent policy: memory, log-probabilities and values are computed again from the episode's start."""

    def __init__(
        self,
        explorer: Explorer,
        network: NetworkConfig,
        config: ExplorerConfig,
        strategy: Strategy,
        advantage: Advantage,
        loss: Loss,
        gamma: float,
    ) -> None:
        """Create the optimiser of all parameters, those of the critic and the standard deviation among them."""
        self._explorer, self._network, self._config, self._strategy = explorer, network, config, strategy
        self._advantage, self._loss, self._gamma = advantage, loss, gamma
        self.optimisation = strategy.optimise(explorer, betas=(0.9, 0.999), weight_decay=0.0)

    def memory(self, batch: Sequences) -> Tensor:
        """Return the explorer's memory after each observation, ``[B, T + 1, M]``."""
        return self._explorer.remember(
            batch.cameras(self._network.explorer_cameras),
            batch.state,
            batch.previous,
            self._explorer.start(len(batch.valid_BT), batch.valid_BT.device),
            batch.seen,
        ).memory_BTM

    def train(
        self,
        batch: Sequences | None,
        numbers: Sequence[int],
        rewards_BT: Tensor | None,
        teacher_memory: Tensor | None,
        learning_rate: float,
    ) -> dict[str, float]:
        """Train on the episodes of a round.

        Args:
            batch: this process's episodes; None if it has none
            numbers: their numbers in the run
            rewards_BT: their rewards
            teacher_memory: the world model's memory, ``[B, T + 1, M]``, which the explorer's memory imitates
            learning_rate: of all updates
        """
        config, strategy, explorer = self._config, self._strategy, self._explorer
        advantages, returns, added = self._advantages(batch, numbers, rewards_BT)
        steps = strategy.processes.sum({"steps": float(batch.valid_BT.sum()) if batch else 0.0})["steps"]
        metrics: dict[str, float] = {}
        explorer.train()
        for _ in range(config.epochs):
            parts: dict[str, float] = {}
            objective = None
            if batch is not None and advantages is not None and returns is not None:
                objective, parts = self._objective(batch, advantages, returns, teacher_memory, steps)
            found = strategy.processes.metrics(parts)
            if objective is not None:
                lacks = found["entropy"] < config.entropy_floor
                self.optimisation.backward(objective.loss - (config.entropy_weight + float(lacks)) * objective.entropy)
            norm, _ = self.optimisation.step(learning_rate, config.max_gradient_norm)
            metrics = {**found, "ratio/max": max(found["ratio/max"], metrics.get("ratio/max", 0.0))}
        explorer.eval()
        return {**metrics, "gradient_norm": norm, **added}

    @torch.no_grad()
    def _advantages(
        self, batch: Sequences | None, numbers: Sequence[int], rewards_BT: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, dict[str, float]]:
        """Return advantages and returns, from the episodes of all processes, so that they are whitened together."""
        strategy, rows = self._strategy, {}
        if batch is not None and rewards_BT is not None:
            last_BM = self.memory(batch)[:, -1]  # the memory stays as it is after the last observation
            final_B = self._explorer.value(last_BM)[:, 0]
            for i, number in enumerate(numbers):
                length = int(batch.valid_BT[i].sum())
                rewards_T = rewards_BT[i, :length].double().clone()
                if not batch.terminated_B[i]:
                    rewards_T[-1] += self._gamma * final_B[i]
                rows[number] = torch.stack([rewards_T, batch.stored["value"][i, :length].double()])
        everything = strategy.processes.union(rows)
        order = sorted(everything)
        longest = max(everything[number].shape[1] for number in order)
        mask = torch.stack([torch.arange(longest) < everything[number].shape[1] for number in order])
        both = torch.zeros(2, len(order), longest, dtype=torch.float64)
        for i, number in enumerate(order):
            both[:, i, : everything[number].shape[1]] = everything[number].cpu()
        rewards_NT, values_NT = both
        output = self._advantage(
            AdvantageInputs(
                rewards_N=rewards_NT.sum(1),
                groups_N=torch.zeros(len(order), dtype=torch.int64),
                lengths_N=mask.sum(1),
                mask_NT=mask,
                rewards_NT=rewards_NT,
                turns_NT=torch.where(mask, torch.arange(longest), -1),
                values_NT=values_NT,
            )
        )
        metrics = {name: float(value) for name, value in output.metrics.items()}
        if batch is None or output.returns_NT is None:
            return None, None, metrics
        mine, length = [order.index(number) for number in numbers], batch.valid_BT.shape[1]
        of = (output.advantages, output.returns_NT)
        advantages, returns = (one[mine][:, :length].float().to(batch.valid_BT.device) for one in of)
        return advantages, returns, metrics

    def _objective(
        self, batch: Sequences, advantages_BT: Tensor, returns_BT: Tensor, teacher: Tensor | None, steps: float
    ) -> tuple[Objective, dict[str, float]]:
        config, valid = self._config, batch.valid_BT
        memory = self.memory(batch)
        now = memory[:, :-1][valid]
        mean, std = self._explorer.policy(now)
        sample = batch.stored["sample"][valid]
        logprobs, old = log_probability(sample, mean, std), batch.stored["logprob"][valid]
        sequence = torch.arange(len(valid), device=valid.device)[:, None].expand_as(valid)[valid]
        weights = torch.full_like(logprobs, 1 / steps)
        policy = self._loss(
            LossInputs(
                logprobs_M=logprobs,
                old_logprobs_M=old,
                advantages_M=advantages_BT[valid],
                weights_M=weights,
                sequence_M=sequence,
                factors_M=torch.ones_like(weights),
            )
        )
        values, before, returns = self._explorer.value(now)[:, 0], batch.stored["value"][valid], returns_BT[valid]
        squares = (values - returns) ** 2
        if config.clip_value is not None:
            limited = before + (values - before).clamp(-config.clip_value, config.clip_value)
            squares = torch.maximum(squares, (limited - returns) ** 2)
        value_loss = 0.5 * (weights * squares).sum()
        entropy = (weights * entropy_estimate(sample, mean, std)).sum()
        loss = policy.loss + config.value_weight * value_loss
        distillation = loss.new_zeros(())
        if teacher is not None and config.distillation_weight:
            distillation = (((memory - teacher.detach()) ** 2).mean(-1)[:, :-1] * valid).sum() / steps
            loss = loss + config.distillation_weight * distillation
        ratio = float((logprobs.detach() - old).abs().max().exp())
        numbers = {"policy": policy.loss, "value": value_loss, "distillation": distillation}
        found = {f"loss/{name}": float(one.detach()) for name, one in numbers.items()}
        return Objective(loss, entropy), {**found, "entropy": float(entropy.detach()), "ratio/max": ratio}
