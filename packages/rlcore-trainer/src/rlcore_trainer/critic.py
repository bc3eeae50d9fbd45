"""The critic: what a state is worth, learnt beside the policy.

Axes: ``M`` the trained tokens of a micro-batch, ``D`` the width of the model.

The value of a token is that of the state before it, read from the hidden state that the token's log-probability comes
from: the head of the last prompt token gives the value of the first written one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import torch
from rlcore.errors import UserError
from rlcore.model_folder import download, local_folder
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlcore_trainer.attention import packed_attention_of
from rlcore_trainer.config import CriticConfig, PolicyGradientConfig
from rlcore_trainer.losses import value_loss
from rlcore_trainer.model import hidden_before
from rlcore_trainer.objective import Rows, add_metrics, rows_of, split
from rlcore_trainer.packing import MicroBatch, Sequence, pack
from rlcore_trainer.resume_check import HEAD_WEIGHTS, another_critic
from rlcore_trainer.second_model import load_second
from rlcore_trainer.strategies.single import SingleProcess

HEAD_FILE = "value_head.safetensors"
"""``weight`` [1, D] and ``bias`` [1], beside the weights of a critic's folder."""


class Critic:
    """A scalar head, on a trunk of its own or on the policy's.

    Attributes:
        shares_trunk: whether the head reads the policy's hidden states; its loss then trains the policy's layers too
        coefficient: weight of the value loss beside the policy loss where the trunk is shared
    """

    def __init__(
        self,
        config: CriticConfig,
        policy: PreTrainedModel,
        strategy: SingleProcess,
        trainer: PolicyGradientConfig,
    ) -> None:
        """Make the critic of ``critic.model``; its first values are 0 unless the folder brings a head.

        Args:
            config: its model must not be None
            policy: what ``copy`` copies
            strategy: the policy's; the critic gets another instance of its class
            trainer: AdamW's settings and the budget of a micro-batch

        Raises:
            UserError: there is no such model, as `load_second`, or the head in the folder does not fit.
        """
        assert config.model is not None
        self._config, self._trainer = config, trainer
        self.shares_trunk = config.model == "head"
        self.coefficient = config.coefficient
        trunk = _trunk(policy)
        folder = None
        if config.model not in ("head", "copy"):
            folder = local_folder(config.model, where="critic.model") or download(config.model, where="critic.model")
        if folder is not None:
            trunk = _trunk(load_second(folder, policy, where="critic.model"))
        elif not self.shares_trunk:
            trunk = copy.deepcopy(trunk)
        self._trunk = trunk
        # In float32 at least: a value of hundreds has no room for its decimals in bfloat16.
        dtype_of_head = torch.promote_types(policy.dtype, torch.float32)
        width = int(trunk.config.get_text_config().hidden_size)
        self._head = nn.Linear(width, 1, device=policy.device, dtype=dtype_of_head)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        if folder is not None and (folder / HEAD_FILE).is_file():
            _read_head(self._head, folder / HEAD_FILE)
        self._module = self._head if self.shares_trunk else nn.ModuleDict({"trunk": trunk, "head": self._head})
        self._module.requires_grad_(True)
        self._strategy = type(strategy)(strategy.config)
        self._strategy.prepare(self._module, betas=trainer.betas, weight_decay=trainer.weight_decay)

    def read(self, hidden_MD: Tensor) -> Tensor:
        """The values of the head for hidden states, ``values_M``."""
        values_M: Tensor = self._head(hidden_MD.to(self._head.weight.dtype))[:, 0]
        return values_M

    @torch.no_grad()
    def values(self, sequences: SequenceOf[Sequence]) -> Rows:
        """The value of each sequence's trained tokens, by index."""
        found: Rows = {}
        with packed_attention_of(self._trunk):
            for batch in self._packed(sequences):
                found |= split(self.read(hidden_before(self._trunk, batch)), batch.sequence_M)
        return self._strategy.union(found)

    def loss(
        self, values_M: Tensor, old_values_M: Tensor, returns_M: Tensor, weights_M: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The clipped value loss; see `rlcore_trainer.losses.value_loss`."""
        return value_loss(
            values_M, old_values_M.to(values_M), returns_M.to(values_M), weights_M.to(values_M), clip=self._config.clip
        )

    def learn(
        self, sequences: SequenceOf[Sequence], old_values: Rows, returns: Rows, *, learning_rate: float
    ) -> dict[str, float]:
        """One update of the critic alone; the policy's layers stay as they are.

        Args:
            sequences: a mini-batch, every token of which weighs the same
            old_values: the values before the rollout's first update, by index of the sequence
            returns: the targets, likewise
            learning_rate: of a head; a model of its own has its own
        """
        weight = 1.0 / sum(sequence.trained for sequence in sequences)
        totals: dict[str, float] = {}
        if not self.shares_trunk:
            self._trunk.train()
        with packed_attention_of(self._trunk):
            for batch in self._packed(sequences):
                with torch.set_grad_enabled(not self.shares_trunk):
                    hidden_MD = hidden_before(self._trunk, batch)
                values_M = self.read(hidden_MD)
                old_M, returns_M = rows_of(old_values, batch.sequence_M), rows_of(returns, batch.sequence_M)
                loss, metrics = self.loss(values_M, old_M, returns_M, torch.full_like(values_M, weight))
                self._strategy.backward(loss)
                add_metrics(totals, metrics | {"critic/loss": loss})
        if not self.shares_trunk:
            self._trunk.train(False)
        totals = self._strategy.sum(totals)
        norm, updated = self.step(learning_rate)
        return totals | {"critic/gradient_norm": norm, "critic/skipped": float(not updated)}

    def step(self, learning_rate: float) -> tuple[float, bool]:
        """Update with the gradients that are there; ``learning_rate`` as in `learn`.

        Returns:
            The norm of the gradient, and whether there was an update: there is none when it is not finite.
        """
        rate = learning_rate if self.shares_trunk else self._config.learning_rate
        return self._strategy.step(rate, self._trainer.max_gradient_norm)

    def _packed(self, sequences: SequenceOf[Sequence]) -> list[MicroBatch]:
        """This process's share of the micro-batches."""
        return pack(sequences, self._trainer.max_tokens_per_batch, self._trunk.device, self._strategy.place)

    def forget(self) -> None:
        """Drop the gradients that are there."""
        self._module.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """Everything that `restore` needs: weights and optimiser."""
        return {"weights": self._module.state_dict(), "strategy": self._strategy.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`.

        Raises:
            UserError: it is of another kind of critic, or of a model with other layers.
        """
        weights = state["weights"]
        own = self._module.state_dict()
        if {name: value.shape for name, value in weights.items()} != {name: v.shape for name, v in own.items()}:
            was_model = "a model of its own" if self.shares_trunk else "a model of other layers"
            raise another_critic(str(self._config.model), was_head=set(weights) == HEAD_WEIGHTS, found=was_model)
        self._module.load_state_dict(weights)
        self._strategy.restore(state["strategy"])


def explained_variance(values: Tensor, returns: Tensor) -> float | None:
    """``1 - Var(returns - values) / Var(returns)``: 1 is perfect, 0 no better than a constant; None for equal returns.

    Both are flat and of the same tokens.
    """
    if not len(returns) or not (spread := returns.var(correction=0)) > 0:
        return None
    return float(1 - (returns - values).var(correction=0) / spread)


def _trunk(model: PreTrainedModel) -> PreTrainedModel:
    trunk = model.base_model
    assert isinstance(trunk, PreTrainedModel)
    return trunk


def _read_head(head: nn.Linear, file: Path) -> None:
    try:
        tensors = load_file(file)
        head.load_state_dict(tensors)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
            raise RuntimeError("numbers that are not finite")
    except (SafetensorError, RuntimeError, OSError) as error:
        raise UserError(
            f"a critic's head has weight [1, {head.in_features}] and bias [1]",
            found=" ".join(str(error).split()),
            where=str(file),
            mend="remove the file, and the head starts from zero",
        ) from error
