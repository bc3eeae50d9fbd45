"""The policy that a KL term is measured from."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from rlcore_trainer.algorithm_config import KlConfig
from rlcore_trainer.checkpoint import Checkpoints
from rlcore_trainer.lora import has_adapter, read_values, switched_off, values_of, write_values
from rlcore_trainer.resume_check import no_reference
from rlcore_trainer.second_model import load_second


class AdapterReference:
    """The policy as it was, in the policy's own module: its adapter off, or with the values that it had."""

    def __init__(self, policy: PreTrainedModel, values: Mapping[str, Tensor] | None) -> None:
        """Take the policy, and the adapter's values; None is a new adapter, which changes nothing."""
        self._policy, self._values = policy, values

    @contextmanager
    def standing_in(self) -> Iterator[PreTrainedModel]:
        """Inside, the policy's module computes as the reference does. No gradient may be under way."""
        if self._values is not None:
            present = values_of(self._policy)
            write_values(self._policy, self._values)
            try:
                yield self._policy
            finally:
                write_values(self._policy, present)
            return
        with switched_off(self._policy):
            yield self._policy


def reference_policy(
    policy: PreTrainedModel,
    config: KlConfig,
    *,
    folder: Path,
    checkpoints: Checkpoints | None,
    keep: bool,
    resumed: bool,
    start: Path | None = None,
) -> PreTrainedModel | AdapterReference | None:
    """The reference of a run, frozen; None while the KL term has no weight, as nothing needs it then.

    Of a policy that is an adapter on a base, it is the same module.

    Args:
        policy: as it is when reinforcement learning starts, unless the run is resumed
        config: ``reference`` names another one
        folder: what the policy was loaded from
        checkpoints: where the reference of a run is kept that no folder holds
        keep: whether the policy has been trained since it was loaded, so that resuming needs a copy
        resumed: take what was kept, as the policy has moved on
        start: the folder of the adapter that the run started from, where it did

    Raises:
        UserError: the one that is named cannot be used, or the one that a resumed run needs was not kept.
    """
    if not config.coefficient:
        return None
    if config.reference is None and not resumed:
        if keep and checkpoints is not None:
            checkpoints.save_reference(policy, folder)
        if has_adapter(policy):
            return AdapterReference(policy, values_of(policy) if keep or start is not None else None)
        reference: PreTrainedModel = copy.deepcopy(policy)
        reference.train(False)
    else:
        kept = checkpoints.folder / "reference" if checkpoints is not None else None
        source = Path(config.reference) if config.reference else kept if kept and kept.is_dir() else folder
        if keep and source == folder and config.reference is None:
            raise no_reference(checkpoints.folder if checkpoints is not None else None)
        if has_adapter(policy) and config.reference is None:
            started = source if source != folder else start
            return AdapterReference(policy, None if started is None else read_values(policy, started))
        reference = load_second(source, policy, where="algorithm.kl.reference")
    reference.requires_grad_(False)
    return reference
