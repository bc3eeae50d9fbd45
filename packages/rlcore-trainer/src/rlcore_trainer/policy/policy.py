"""Protocols for policies, as used by trainers.

Axes: ``M`` the trained actions of a micro-batch (tokens for a language model), ``D`` the width of the features, ``T``
the tokens of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import torch
from rlcore.contracts import NamedTensor
from rlcore.types import Prompt
from torch import Tensor, nn

from rlcore_trainer.batching.packing import MicroBatch
from rlcore_trainer.policy.logprobs import LossOfChunk, LossOfOutput, Output
from rlcore_trainer.policy.root import RootModule


class PolicyLoss(NamedTuple):
    """A loss of a micro-batch, with the tensors that it was computed from."""

    loss: Tensor
    """The loss, 0-d; call ``backward`` on it."""
    metrics: list[dict[str, Tensor]]
    """Metrics of each part evaluated at once, detached."""
    values_M: Tensor | None
    """Values of the value head, computed in the same forward pass; None without a head."""


class Features(Protocol):
    """Layers that map a micro-batch to a vector for each trained action."""

    @property
    def module(self) -> nn.Module:
        """The module that an optimiser trains."""
        ...

    @property
    def root(self) -> RootModule[Any]:
        """`module` and the value head of a critic. Every weight of a micro-batch is used in its forward pass."""
        ...

    @property
    def device(self) -> torch.device:
        """The device on which micro-batches must be."""
        ...

    @property
    def width(self) -> int:
        """D, the size of the vectors."""
        ...

    def train(self, mode: bool = True) -> None:
        """Enable or disable dropout and similar layers."""
        ...

    def computing(self) -> AbstractContextManager[None]:
        """Return a context manager in which micro-batches are evaluated. The backward pass must run inside it too."""
        ...

    def values(self, batch: MicroBatch, *, trains_model: bool = True) -> Tensor:
        """Return the values of `RootModule.value_head` for the features that predict the trained actions, ``values_M``.

        Call it inside `computing`.

        Args:
            batch: the micro-batch
            trains_model: whether gradients flow to the layers; if not, only to the head
        """
        ...


class Policy(Features, Protocol):
    """A model that assigns probabilities to actions, as used by trainers, updates and checkpoints.

    It is a `rlcore.contracts.WeightSource`, so an engine takes its weights directly.
    """

    version: int
    """Number of updates applied to the weights."""

    @classmethod
    def load(cls, folder: Path, *, dtype: str, device: torch.device) -> Self:
        """Load the policy of a folder for training.

        Raises:
            UserError: the folder cannot be used.
        """
        ...

    @property
    def folder(self) -> Path:
        """The folder that the policy was loaded from, with the files that a checkpoint copies unchanged."""
        ...

    @property
    def adapter(self) -> Mapping[str, Any] | None:
        """See `rlcore.contracts.WeightSource`."""
        ...

    def weights(self, *, adapter_only: bool = False) -> Iterator[NamedTensor]:
        """Yield the live weights, see `rlcore.contracts.WeightSource`."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters, trained or frozen."""
        ...

    def evaluate(self, batch: MicroBatch, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy in nats of every trained action, ``(logprobs_M, entropy_M)``.

        Call it inside `computing`. Gradients flow to the parameters.
        """
        ...

    def loss(
        self,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float = 1.0,
        entropy: bool = True,
        token_wise: bool = True,
    ) -> PolicyLoss:
        """Compute a loss of the values of `evaluate` in the most efficient way for this policy.

        Call it inside `computing`.

        Args:
            batch: the micro-batch to evaluate
            loss_of_chunk: called as ``(rows, logprobs_C, entropy_C)``
            temperature: as in `evaluate`
            entropy: whether ``loss_of_chunk`` receives the entropy; otherwise it may receive None
            token_wise: whether the loss is the sum of its parts over chunks of the actions, so that it can be called
                on a chunk at a time
        """
        ...

    def save(self, folder: Path) -> None:
        """Write the files that `load`, or the start of a resumed run, reads.

        If the processes hold parts of the weights, all of them call this, and the main process writes.
        """
        ...

    def description(self) -> Sequence[str]:
        """Return lines for the log: size, precision and trained parameters."""
        ...

    def recompute_activations(self) -> None:
        """Recompute activations in the backward pass instead of storing them."""
        ...

    def reference(self, *, moved: bool) -> Reference:
        """Return the current policy as the reference of a KL term.

        Args:
            moved: whether the policy differs from the contents of its folder
        """
        ...

    def saved_reference(self, folder: Path | None) -> Reference:
        """Return the reference that `save` wrote to a folder; None selects the contents of the policy's own folder.

        Raises:
            UserError: the folder cannot be used.
        """
        ...

    def second(self, folder: Path, *, where: str) -> Policy:
        """Load another policy that reads the same batches, with the same precision and on the same device.

        Raises:
            UserError: the folder cannot be used; ``where`` is the key that names the folder.
        """
        ...

    @property
    def trunk_module(self) -> nn.Module:
        """The layers that `trunk` copies."""
        ...

    def trunk(self, folder: Path | None = None, *, where: str = "") -> Features:
        """Return separate layers up to the features: those of a folder (raises as `second`), or a copy of its own."""
        ...


@runtime_checkable
class TokenPolicy(Policy, Protocol):
    """A policy over tokens, which can be compared with its engine on a fixed prompt."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary."""
        ...

    @property
    def max_length(self) -> int | None:
        """The maximum sequence length; None if unspecified."""
        ...

    @property
    def sees_images(self) -> bool:
        """Whether prompts may have images."""
        ...

    def continuation(self, prompt: Prompt, token_ids: Sequence[int], *, rounded: bool = True) -> Tensor:
        """Return the log-probabilities of tokens after a prompt in nats, float64 [T].

        Computed without packing, as in engines.

        Args:
            prompt: the prompt, with its images
            token_ids: the tokens
            rounded: compute in the precision of the weights; otherwise in float32, with the same weights
        """
        ...

    def largest_token(self) -> int:
        """Return the token whose embedding contains the largest absolute number, or NaN."""
        ...

    @property
    def perturbations(self) -> int:
        """The number of ways in which `perturbed` modifies the weights. Each weight affects sampling in one of them."""
        ...

    def perturbed(self, number: int) -> AbstractContextManager[None]:
        """Temporarily modify all trained weights; they are restored exactly."""
        ...


Found = TypeVar("Found")


@runtime_checkable
class DistilledPolicy(TokenPolicy, Protocol):
    """A policy whose whole distributions can be compared with those of a teacher, which is a policy of this kind."""

    @property
    def has_output(self) -> bool:
        """Whether `loss` takes ``loss_of_output``, and `of_output` can be called."""
        ...

    def second(self, folder: Path, *, where: str, dtype: str | None = None) -> Self:
        """Load another policy as `Policy.second`. None uses the dtype of the policy."""
        ...

    def of_output(self, batch: MicroBatch, function: Callable[[Output], Found]) -> Found:
        """Call a function with the output of a micro-batch, in the forward pass. Call it inside `computing`."""
        ...

    def loss(
        self,
        batch: MicroBatch,
        loss_of_chunk: LossOfChunk,
        *,
        temperature: float = 1.0,
        entropy: bool = True,
        token_wise: bool = True,
        loss_of_output: LossOfOutput | None = None,
    ) -> PolicyLoss:
        """Compute a loss as `Policy.loss`, with a term of the logits of all tokens."""
        ...


class Reference(Protocol):
    """The policy relative to which a KL term is measured."""

    def standing_in(self) -> AbstractContextManager[Policy]:
        """Return a context manager that gives the policy to evaluate. No gradient computation may be in progress."""
        ...

    def follow(self, policy: Policy) -> None:
        """Copy the current policy, unless the reference was loaded from another model."""
        ...
