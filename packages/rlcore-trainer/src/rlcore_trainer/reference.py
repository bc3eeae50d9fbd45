"""The policy that a KL term is measured from."""

from __future__ import annotations

import copy
from pathlib import Path

from transformers import PreTrainedModel

from rlcore_trainer.algorithm_config import KlConfig
from rlcore_trainer.checkpoint import Checkpoints
from rlcore_trainer.model import load_policy


def reference_policy(
    policy: PreTrainedModel,
    config: KlConfig,
    *,
    folder: Path,
    checkpoints: Checkpoints | None,
    keep: bool,
    resumed: bool,
) -> PreTrainedModel | None:
    """The reference of a run, frozen; None while the KL term has no weight, as nothing needs it then.

    Args:
        policy: as it is when reinforcement learning starts, unless the run is resumed
        config: ``reference`` names another one
        folder: what the policy was loaded from
        checkpoints: where the reference of a run is kept that no folder holds
        keep: whether the policy has been trained since it was loaded, so that resuming needs a copy
        resumed: take what was kept, as the policy has moved on
    """
    if not config.coefficient:
        return None
    if config.reference is None and not resumed:
        if keep and checkpoints is not None:
            checkpoints.save_reference(policy, folder)
        reference: PreTrainedModel = copy.deepcopy(policy)
        reference.train(False)
    else:
        kept = checkpoints.folder / "reference" if checkpoints is not None else None
        source = Path(config.reference) if config.reference else kept if kept and kept.is_dir() else folder
        dtype = str(policy.dtype).removeprefix("torch.")
        reference = load_policy(source, dtype=dtype, device=policy.device)
    reference.requires_grad_(False)
    return reference
