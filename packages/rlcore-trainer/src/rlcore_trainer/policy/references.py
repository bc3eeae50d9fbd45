"""The reference policy of a KL term: a frozen copy, or a state of the policy's own module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rlcore_models.lora import switched_off, values_of, write_values
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlcore_trainer.policy.policy import Policy


class FrozenReference:
    """A separate policy that is never trained.

    Args:
        policy: the reference
        follows: whether `follow` changes it
    """

    def __init__(self, policy: Policy, *, follows: bool = False) -> None:
        self._policy, self._follows = policy, follows

    def standing_in(self) -> AbstractContextManager[Policy]:
        """Return a context manager that gives the reference itself."""
        return nullcontext(self._policy)

    def shard(self, divide: Callable[[nn.Module], None], policy: Policy) -> None:
        """Divide the weights between processes, like those of the policy, and `follow` it."""
        divide(self._policy.root)
        self.follow(policy)

    def follow(self, policy: Policy) -> None:
        """Copy the policy's current weights if the reference is a copy of the policy."""
        if self._follows:
            self._policy.module.load_state_dict(policy.module.state_dict())


class AdapterReference:
    """A former state of the policy in its own module, with the adapter disabled or with its former values."""

    def __init__(self, policy: Policy, model: PreTrainedModel, values: Mapping[str, Tensor] | None) -> None:
        """Store the policy, its model and the adapter's values. None is a new adapter, which has no effect."""
        self._policy, self._model, self._values = policy, model, values

    @contextmanager
    def standing_in(self) -> Iterator[Policy]:
        """Make the policy's module compute as the reference. No gradient computation may be in progress."""
        if self._values is not None:
            present = values_of(self._model)
            write_values(self._model, self._values)
            try:
                yield self._policy
            finally:
                write_values(self._model, present)
            return
        with switched_off(self._model):
            yield self._policy

    def follow(self, policy: Policy) -> None:
        """Copy the adapter's current values."""
        self._values = values_of(self._model)
