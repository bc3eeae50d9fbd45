"""Training and evaluation of the world model.

Axes: B episodes, T steps, M the memory, K codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rlcore_trainer.distributed.strategy import Strategy
from torch import Tensor

from rl_plugin_world_model.config import NetworkConfig, PhaseConfig
from rl_plugin_world_model.models.networks import WorldModel
from rl_plugin_world_model.sequences import Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What the world model says about episodes. Values of steps that an episode does not have are 0."""

    error_BT: Tensor
    """Error of the next frame: nats per patch for tokens, squared error per coordinate for latents."""
    uncertainty_BT: Tensor
    """Entropy of the predicted tokens in nats per patch; 0 for latents."""
    memory: Tensor
    """The memory after each observation, ``[B, T + 1, M]``."""
    right_BT: Tensor
    """Share of the patches whose token is right; 0 for latents."""
    pictures: Tensor | None = None
    """Predicted pictures, uint8 ``[B, T, height, width, 3]``; see `predictions`."""


class WorldModelTraining:
    """Trains a world model on episodes."""

    def __init__(self, model: WorldModel, network: NetworkConfig, config: PhaseConfig, strategy: Strategy) -> None:
        """Create the optimiser.

        Args:
            model: the world model
            network: what it sees and predicts
            config: batch and optimiser settings
            strategy: strategy of the run
        """
        self._model, self._network, self._config, self._strategy = model, network, config, strategy
        self.optimisation = strategy.optimise(model, betas=(0.9, 0.999), weight_decay=config.weight_decay)

    def train(self, batch: Sequences | None, learning_rate: float) -> dict[str, float]:
        """Train on the episodes of all processes, in parts of ``bptt_length`` steps with one update each.

        The memory starts at zero with each episode and is carried from one part to the next, without gradients.

        Args:
            batch: this process's share of the batch; None if it has none
            learning_rate: of all updates

        Returns:
            Mean loss, gradient norm and number of updates.
        """
        model, strategy, length = self._model, self._strategy, self._config.bptt_length
        longest = int(strategy.processes.max(float(batch.valid_BT.shape[1] if batch else 0)))
        memory = None if batch is None else model.start(len(batch.valid_BT), batch.valid_BT.device)
        total = count = norms = 0.0
        updates = 0
        model.train()
        for start in range(0, longest, length):
            valid = None if batch is None else batch.valid_BT[:, start : start + length]
            steps = strategy.processes.sum({"steps": float(valid.sum()) if valid is not None else 0.0})["steps"]
            summed = 0.0
            if batch is not None and memory is not None and valid is not None and valid.numel():
                errors, memory = self._part(batch, memory, start, valid)
                self.optimisation.backward(errors / steps)
                summed = float(errors.detach())
            norm, _ = self.optimisation.step(learning_rate, self._config.max_gradient_norm)
            total += strategy.processes.sum({"loss": summed})["loss"]
            count, norms, updates = count + steps, norms + norm, updates + 1
        model.eval()
        return {"loss": total / count, "gradient_norm": norms / updates, "updates": float(updates)}

    def _part(self, batch: Sequences, memory: Tensor, start: int, valid: Tensor) -> tuple[Tensor, Tensor]:
        model, rows = self._model, slice(start, start + valid.shape[1])
        code = model.code
        with torch.no_grad():
            codes = code.encode(batch.pictures[self._network.target][:, start : rows.stop + 1].flatten(0, 1))
            codes = codes.view(len(valid), valid.shape[1] + 1, *codes.shape[1:])
        remembered = model.remember(
            batch.cameras(self._network.cameras)[:, rows],
            batch.state[:, rows],
            batch.previous[:, rows],
            memory.detach(),
            valid,
            through=self._config.memory_backprop,
        )
        predicted = model.predict(remembered, batch.action_BTA[:, rows], codes[:, :-1].flatten(0, 1))
        error = code.error(predicted, codes[:, 1:].flatten(0, 1)).view_as(valid)
        return (error * valid).sum(), remembered.last_BM.detach()


@torch.no_grad()
def predictions(model: WorldModel, network: NetworkConfig, batch: Sequences, *, pictures: bool = False) -> Predictions:
    """Return what the model predicts for episodes, with its memory from their beginning."""
    valid = batch.valid_BT
    remembered = model.remember(
        batch.cameras(network.cameras), batch.state, batch.previous, model.start(len(valid), valid.device), batch.seen
    )
    now = type(remembered)(remembered.grid[:, :-1], remembered.memory_BTM[:, :-1], remembered.last_BM)
    target = batch.pictures[network.target]
    codes = model.code.encode(target.flatten(0, 1))
    codes = codes.view(*target.shape[:2], *codes.shape[1:])
    predicted = model.predict(now, batch.action_BTA, codes[:, :-1].flatten(0, 1))
    error = model.code.error(predicted, codes[:, 1:].flatten(0, 1)).view_as(valid) * valid
    shown = model.code.decode(predicted).view(*valid.shape, *target.shape[2:]) if pictures else None
    return Predictions(
        error_BT=error,
        uncertainty_BT=model.code.uncertainty(predicted).view_as(valid) * valid,
        memory=remembered.memory_BTM,
        right_BT=model.code.right(predicted, codes[:, 1:].flatten(0, 1)).view_as(valid) * valid,
        pictures=shown,
    )


@torch.no_grad()
def evaluate(
    model: WorldModel, network: NetworkConfig, batches: Sequence[Sequences], strategy: Strategy
) -> dict[str, float]:
    """Return the mean loss on held-out episodes of all processes, and those of two predictors that learn nothing.

    Returns:
        ``loss``, ``copy`` (the last frame again), ``marginal`` (frequencies or means of the training data, by
        position), and for tokens ``accuracy``.
    """
    sums = {"steps": 0.0, "loss": 0.0, "copy": 0.0, "marginal": 0.0}
    for batch in batches:
        valid = batch.valid_BT
        sums["steps"] += float(valid.sum())
        sums["loss"] += float(predictions(model, network, batch).error_BT.sum())
        codes = model.code.encode(batch.pictures[network.target].flatten(0, 1))
        codes = codes.view(*batch.seen.shape, *codes.shape[1:])
        before, after = codes[:, :-1].flatten(0, 1), codes[:, 1:].flatten(0, 1)
        sums["copy"] += float((model.code.copy_error(before, after).view_as(valid) * valid).sum())
        sums["marginal"] += float((model.code.marginal_error(after).view_as(valid) * valid).sum())
    total = strategy.processes.sum(sums)
    return {name: total[name] / total["steps"] for name in ("loss", "copy", "marginal")}
