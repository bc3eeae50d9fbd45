"""The critic: a value function trained alongside the policy.

Axes: ``M`` the trained tokens of a micro-batch, ``D`` the width of the model.

The value of a token is the value of the state before it. It is read from the hidden state that also gives the token's
log-probability: the head at the last prompt token gives the value of the first written token.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.models.folder import download, local_folder
from rlcore_models.sharded import put
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rlcore_trainer.algorithms.losses.values import value_loss
from rlcore_trainer.batching.packing import Minibatch, Share
from rlcore_trainer.batching.sequence_metrics import Rows, add_metrics, rows_of, split
from rlcore_trainer.config import PolicyGradientConfig
from rlcore_trainer.distributed.strategy import Strategy
from rlcore_trainer.learner.critic_config import HEAD_WEIGHTS, CriticConfig, another_critic
from rlcore_trainer.policy.policy import Features, Policy

HEAD_FILE = "value_head.safetensors"
"""File in a critic's folder, next to the weights, with ``weight`` [1, D] and ``bias`` [1] of the head."""


class Critic:
    """A scalar head on a separate trunk or on the policy's trunk.

    Attributes:
        shares_trunk: whether the head reads the policy's hidden states; its loss then also trains the policy's layers
        coefficient: weight of the value loss relative to the policy loss if the trunk is shared
    """

    def __init__(
        self,
        config: CriticConfig,
        policy: Policy,
        strategy: Strategy,
        trainer: PolicyGradientConfig,
    ) -> None:
        """Create the critic of ``critic.model``. Its initial values are 0 unless the folder contains a head.

        Args:
            config: configuration of the critic; its model must not be None
            policy: the policy that ``copy`` copies
            strategy: strategy of the run; the critic has its own optimiser
            trainer: settings of AdamW and the token budget of a micro-batch

        Raises:
            UserError: the model does not exist, as for `Policy.trunk`, or the head in the folder does not fit.
        """
        assert config.model is not None
        self._config, self._trainer = config, trainer
        self.shares_trunk = config.shares_trunk
        self.coefficient = config.coefficient
        self._policy, folder = policy, None
        if config.model not in ("head", "copy"):
            folder = local_folder(config.model, where="critic.model") or download(config.model, where="critic.model")
        self._trunk: Features = policy if self.shares_trunk else policy.trunk(folder, where="critic.model")
        # At least float32, because bfloat16 cannot represent the decimals of values in the hundreds.
        dtype_of_head = torch.promote_types(policy.dtype, torch.float32)
        self._head = nn.Linear(self._trunk.width, 1, device=policy.device, dtype=dtype_of_head)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        if folder is not None and (folder / HEAD_FILE).is_file():
            _read_head(self._head, folder / HEAD_FILE)
        self._module = (
            self._head if self.shares_trunk else nn.ModuleDict({"trunk": self._trunk.module, "head": self._head})
        )
        self._module.requires_grad_(True)
        self._trunk.root.value_head = self._head
        if not self.shares_trunk:
            strategy.shard(self._trunk.root)
            if folder is None and strategy.shards:
                self._copy_layers()  # divided weights are copied to divided ones
        self._strategy = strategy
        self._prepare()

    def follow(self) -> None:
        """Reinitialise the critic from the policy's current layers if it is a copy of them."""
        if self._config.model == "copy":
            self._copy_layers()
            self._prepare()

    def _copy_layers(self) -> None:
        self._trunk.module.load_state_dict(self._policy.trunk_module.state_dict())

    def _prepare(self) -> None:
        trainer = self._trainer
        self._optimisation = self._strategy.optimise(
            self._module, betas=trainer.betas, weight_decay=trainer.weight_decay
        )

    @torch.no_grad()
    def values(self, share: Share) -> Rows:
        """Return the values of each sequence's trained tokens, by its place."""
        found: Rows = {}
        with self._trunk.computing():
            for batch in share.micro_batches(self._trunk.device, self._strategy.processes.team):
                found |= split(self._trunk.values(batch), batch.sequence_M)
        return found

    def loss(
        self, values_M: Tensor, old_values_M: Tensor, returns_M: Tensor, weights_M: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the clipped value loss; see `rlcore_trainer.algorithms.losses.values.value_loss`."""
        return value_loss(
            values_M, old_values_M.to(values_M), returns_M.to(values_M), weights_M.to(values_M), clip=self._config.clip
        )

    def learn(self, minibatch: Minibatch, *, tokens: int, learning_rate: float) -> dict[str, float]:
        """Update the critic alone, without changing the policy's layers.

        Args:
            minibatch: this process's share, with values before the first update on the rollout, and returns
            tokens: trained tokens of the mini-batch in all processes, over which the loss is a mean
            learning_rate: learning rate of a head; a separate model uses its own
        """
        assert minibatch.values is not None
        assert minibatch.returns is not None
        totals: dict[str, float] = {}
        if not self.shares_trunk:
            self._trunk.train()
        with self._trunk.computing():
            for batch in minibatch.share.micro_batches(self._trunk.device, self._strategy.processes.team):
                values_M = self._trunk.values(batch, trains_model=not self.shares_trunk)
                old_M = rows_of(minibatch.values, batch.sequence_M)
                returns_M = rows_of(minibatch.returns, batch.sequence_M)
                loss, metrics = self.loss(values_M, old_M, returns_M, torch.full_like(values_M, 1.0 / tokens))
                self._optimisation.backward(loss)
                add_metrics(totals, metrics | {"critic/loss": loss})
        if not self.shares_trunk:
            self._trunk.train(False)
        totals = self._strategy.processes.metrics(totals)
        norm, _ = self.step(learning_rate)
        return totals | {"critic/gradient_norm": norm}

    def step(self, learning_rate: float) -> tuple[float, bool]:
        """Update with the accumulated gradients; ``learning_rate`` as in `learn`.

        Returns:
            The norm of the gradient, and whether an update was made. No update is made if the norm is not finite.
        """
        rate = learning_rate if self.shares_trunk else self._config.learning_rate
        return self._optimisation.step(rate, self._trainer.max_gradient_norm)

    def state(self) -> dict[str, Any]:
        """Return the data that `restore` needs: weights and optimiser state."""
        return {"weights": self._module.state_dict(), "strategy": self._optimisation.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a `state`.

        Raises:
            UserError: the state is of a different kind of critic, or of a model with other layers.
        """
        weights = state["weights"]
        own = self._module.state_dict()
        if {name: value.shape for name, value in weights.items()} != {name: v.shape for name, v in own.items()}:
            was_model = "a separate model" if self.shares_trunk else "a model with other layers"
            raise another_critic(str(self._config.model), was_head=set(weights) == HEAD_WEIGHTS, found=was_model)
        for name, value in own.items():
            put(value, weights[name])
        self._optimisation.restore(state["strategy"])


def explained_variance(values: Tensor, returns: Tensor) -> float | None:
    """Return ``1 - Var(returns - values) / Var(returns)``, or None if all returns are equal.

    A value of 1 is perfect, and 0 is no better than a constant. Both tensors are flat and contain the same tokens.
    """
    if not len(returns) or not (spread := returns.var(correction=0)) > 0:
        return None
    return float(1 - (returns - values).var(correction=0) / spread)


def _read_head(head: nn.Linear, file: Path) -> None:
    try:
        tensors = load_file(file)
        head.load_state_dict(tensors)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise RuntimeError("values that are not finite")
    except (SafetensorError, RuntimeError, OSError) as error:
        raise UserError(
            f"the value head must have weight [1, {head.in_features}] and bias [1]",
            found=" ".join(str(error).split()),
            where=str(file),
            fix="remove the file to initialise the head with zeros",
        ) from error
