"""A model of actions as the policy of a trainer. Axes: ``N`` rows of a micro-batch, ``M`` decisions, ``D`` features."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self

import torch
from rlcore.contracts import NamedTensor
from rlcore.errors import UserError
from rlcore_models.streaming import named_tensors
from rlcore_trainer.batching.packing import MicroBatch
from rlcore_trainer.policy.logprobs import LossOfChunk
from rlcore_trainer.policy.policy import PolicyLoss, Reference
from rlcore_trainer.policy.references import FrozenReference
from rlcore_trainer.policy.root import RootModule
from torch import Tensor, nn

from rlcore_control.models.action_model import ActionModel
from rlcore_control.models.loading import load_action_model

OBSERVATION, ACTION = "observation/", "action/"
"""Prefixes of the arrays of a segment: what the policy saw, and what it chose."""


def rows_of_decisions(batch: MicroBatch, prefix: str) -> dict[str, Tensor]:
    """Return the arrays of a micro-batch under a prefix: a row for each decision, or the first if there is none."""
    places = batch.before_M if len(batch.before_M) else batch.before_M.new_zeros(1)
    return {
        name.removeprefix(prefix): rows_N[places] for name, rows_N in batch.arrays.items() if name.startswith(prefix)
    }


class ActionTrunk:
    """The layers of a model of actions that give the features of a decision."""

    def __init__(self, model: ActionModel) -> None:
        self._model, self._root = model, RootModule(model)

    @property
    def module(self) -> ActionModel:
        """The model."""
        return self._model

    @property
    def root(self) -> RootModule[ActionModel]:
        """The module in whose forward pass micro-batches are computed."""
        return self._root

    @property
    def device(self) -> torch.device:
        """The device on which micro-batches must be."""
        return next(self._model.parameters()).device

    @property
    def width(self) -> int:
        """The number of features of a decision."""
        return self._model.features

    def train(self, mode: bool = True) -> None:
        """Enable or disable dropout."""
        self._model.train(mode)

    def computing(self) -> AbstractContextManager[None]:
        """Return a context manager in which the model computes micro-batches."""
        return nullcontext()

    def values(self, batch: MicroBatch, *, trains_model: bool = True) -> Tensor:
        """Return the values of the head for the observation of each decision; see `RootModule.values`."""
        return self._root.values(lambda batch: self._evaluated(batch)[2], batch, trains_model=trains_model)

    def _evaluated(self, batch: MicroBatch) -> tuple[Tensor, Tensor, Tensor]:
        observation, choice = rows_of_decisions(batch, OBSERVATION), rows_of_decisions(batch, ACTION)
        logprobs_M, entropy_M, features_MD = self._model.evaluate(observation, choice)
        if len(batch.before_M):
            return logprobs_M, entropy_M, features_MD
        return logprobs_M[:0], entropy_M[:0], features_MD[:0]  # a model may not accept an empty batch


class ControlPolicy(ActionTrunk):
    """A `rlcore_trainer.policy.policy.Policy` whose tokens are decisions.

    Args:
        model: as loaded by `rlcore_control.models.loading.load_action_model`
        folder: the folder that the model was loaded from
        version: number of updates applied to the weights
    """

    def __init__(self, model: ActionModel, folder: Path = Path(), version: int = 0) -> None:
        super().__init__(model)
        self._folder, self.version = folder, version

    @classmethod
    def load(cls, folder: Path, *, dtype: str, device: torch.device) -> Self:
        """Load the model of a folder.

        Raises:
            UserError: the folder cannot be used, or the precision is not float32.
        """
        if dtype not in ("auto", "float32"):
            raise UserError(
                "a control policy is trained in float32", found=dtype, where="model.dtype", fix="model.dtype=float32"
            )
        return cls(load_action_model(folder).to(device), folder)

    @property
    def folder(self) -> Path:
        """The folder that the model was loaded from."""
        return self._folder

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next(self._model.parameters()).dtype

    @property
    def adapter(self) -> None:
        """None: there is no adapter."""

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        """Yield the live weights, see `rlcore.contracts.WeightSource`."""
        return named_tensors(self._model)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters, trained or frozen."""
        return self._model.parameters()

    def evaluate(self, batch: MicroBatch, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy in nats of every decision, ``(logprobs_M, entropy_M)``.

        Raises:
            UserError: a temperature other than 1, which a distribution of actions does not have.
        """
        logprobs_M, entropy_M, _ = self._root(self._of_temperature(temperature)._evaluated, batch)
        return logprobs_M, entropy_M

    def loss(
        self,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float = 1.0,
        entropy: bool = True,
        token_wise: bool = True,
    ) -> PolicyLoss:
        """Compute the loss of all decisions at once; see `rlcore_trainer.policy.policy.Policy`."""
        evaluated = self._of_temperature(temperature)._evaluated

        def compute() -> PolicyLoss:
            logprobs_M, entropy_M, features_MD = evaluated(batch)
            loss, metrics = loss_of_chunk(slice(None), logprobs_M, entropy_M)
            return PolicyLoss(loss, [metrics], self._root.values_of(features_MD))

        found: PolicyLoss = self._root(compute)
        return found

    def _of_temperature(self, temperature: float) -> Self:
        if temperature != 1.0:
            raise UserError(
                "the actions of a control policy are sampled and trained at temperature 1",
                found=f"{temperature:g}",
                where="rollout.temperature",
                fix="rollout.temperature=1",
            )
        return self

    def save(self, folder: Path) -> None:
        """Write the configuration, weights and statistics of the model."""
        folder.mkdir(parents=True, exist_ok=True)
        self._model.save(folder)

    def description(self) -> Sequence[str]:
        """Return a line with parameters, precision and device, and the shape of a decision."""
        parameters = sum(parameter.numel() for parameter in self.parameters())
        dtype, actions = str(self.dtype).removeprefix("torch."), self._model.spaces.actions
        decision = f"decisions of {self._model.chunk} x {actions} numbers"
        return [f"policy    {parameters:,} parameters, {dtype} on {self.device}, {decision}"]

    def recompute_activations(self) -> None:
        """Reject it: the models are small.

        Raises:
            UserError: always.
        """
        where, fix = "trainer.gradient_checkpointing", "trainer.gradient_checkpointing=false"
        raise UserError("a control policy does not recompute activations", where=where, fix=fix)

    def reference(self, *, moved: bool) -> Reference:
        """Return a frozen copy."""
        return FrozenReference(self._frozen(copy.deepcopy(self._model), self._folder), follows=True)

    def saved_reference(self, folder: Path | None) -> Reference:
        """Return the reference saved in a folder; raises the same errors as `second`."""
        return FrozenReference(self.second(folder or self._folder, where="algorithm.kl.reference"))

    def second(self, folder: Path, *, where: str) -> ControlPolicy:
        """Load a frozen policy.

        Raises:
            UserError: the folder cannot be used, or its model makes other decisions.
        """
        model = self._fitting(folder, where=where)
        return self._frozen(model, folder)

    @property
    def trunk_module(self) -> ActionModel:
        """The layers that `trunk` copies."""
        return self._model

    def trunk(self, folder: Path | None = None, *, where: str = "") -> ActionTrunk:
        """Return separate layers: those of a folder (raises as `second`), or a copy of the policy's own."""
        return ActionTrunk(copy.deepcopy(self._model) if folder is None else self._fitting(folder, where=where))

    def _fitting(self, folder: Path, *, where: str) -> ActionModel:
        model = load_action_model(folder).to(self.device)
        if (model.spaces, model.chunk) != (self._model.spaces, self._model.chunk):
            raise UserError(
                f"the model of {where} must see and decide what the policy does",
                found=f"{model.spaces}, chunks of {model.chunk}",
                where=str(folder),
                fix=f"{where}=FOLDER of a model for the same environment",
            )
        return model

    def _frozen(self, model: ActionModel, folder: Path) -> ControlPolicy:
        model.train(False)
        model.requires_grad_(False)
        return ControlPolicy(model, folder, self.version)
