"""The policy of a run with its optimiser, in one process: supervised updates and the state of a checkpoint.

Axes: ``M`` the trained tokens of a micro-batch, ``C`` a chunk of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from rlcore.runs.progress import Meter, silent
from rlcore.types import derive_seed
from torch import Tensor

from rlcore_trainer.batching.packing import MicroBatch, Share
from rlcore_trainer.config import TrainerTable
from rlcore_trainer.distributed.strategy import Optimisation, Strategy
from rlcore_trainer.policy.policy import Policy

ShowsProgress = Callable[[str, int, str], Meter]
"""Makes a meter for a phase, its total and its unit."""


def unshown(phase: str, total: int, unit: str) -> Meter:
    """Return a meter that shows nothing."""
    return Meter(phase, total, unit, silent)


class TrainedPolicy:
    """A policy and its optimiser in one of the processes of a run.

    Attributes:
        policy: the policy
        strategy: the strategy of the run
        processes: the processes of the run, which compute an update together
        optimisation: the optimiser of the policy
    """

    def __init__(
        self, policy: Policy, strategy: Strategy, settings: TrainerTable, *, progress: ShowsProgress = unshown
    ) -> None:
        self.policy, self.processes, self._progress = policy, strategy.processes, progress
        self.strategy, self._settings = strategy, settings
        strategy.shard(policy.root)
        self.optimisation: Optimisation
        self.restart()

    def restart(self) -> None:
        """Create a new optimiser."""
        betas, weight_decay = self._settings.betas, self._settings.weight_decay
        self.optimisation = self.strategy.optimise(self.policy.module, betas=betas, weight_decay=weight_decay)

    def seed(self, key: Sequence[object]) -> None:
        """Set the random state of dropout, which differs between processes."""
        torch.manual_seed(derive_seed(*key, *self.processes.rank.key))

    def imitate(
        self, share: Share, learning_rate: float, max_gradient_norm: float, shown: bool
    ) -> tuple[float, float, bool]:
        """Update the policy once, and return the loss, the norm of the gradient and whether the weights were updated.

        The loss is the sum over all processes of ``-w log p``, where ``w`` is the weight of a trained token.

        Args:
            share: the sequences of this process
            learning_rate: learning rate of the update
            max_gradient_norm: largest norm of the gradient
            shown: whether to show the progress
        """
        self.policy.train()
        loss = self._loss(share, self._meter("update", share) if shown else unshown("", 0, ""), gradient=True)
        norm, updated = self.optimisation.step(learning_rate, max_gradient_norm)
        self.policy.train(False)
        return loss, norm, updated

    @torch.no_grad()
    def total_loss(self, share: Share) -> float:
        """Return the sum of ``-w log p`` over the trained tokens of all processes in nats, without dropout."""
        return self._loss(share, self._meter("evaluation", share), gradient=False)

    def _loss(self, share: Share, meter: Meter, *, gradient: bool) -> float:
        """Return the sum of ``-w log p`` over the trained tokens of all processes, and add its gradient if asked."""
        total = torch.zeros((), dtype=torch.float64, device=self.policy.device)
        with self.policy.computing(), meter:
            for batch in share.micro_batches(self.policy.device, self.processes.team):
                loss = _supervised_loss(self.policy, batch)
                if gradient:
                    self.optimisation.backward(loss)
                total += loss.detach()
                meter.advance(len(batch.targets_M), tokens=len(batch.targets_M))
        return self.processes.sum({"loss": float(total)})["loss"]

    def state(self) -> dict[str, Any]:
        """Return the state of the optimiser."""
        return self.optimisation.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`. Raises as `Optimisation.restore`."""
        self.optimisation.restore(state)

    def _meter(self, phase: str, share: Share) -> Meter:
        """Return a meter of the trained tokens of this process."""
        return self._progress(phase, share.trained, "token")


def _supervised_loss(policy: Policy, batch: MicroBatch) -> Tensor:
    """Return the weighted sum of ``-log p`` of a micro-batch."""

    def of_chunk(chunk: slice, logprobs_C: Tensor, _: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
        return -(batch.weights_M[chunk].to(logprobs_C) * logprobs_C).sum(), {}

    return policy.loss(batch, of_chunk, entropy=False).loss
