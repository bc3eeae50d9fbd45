"""The policy that a KL term is measured from."""

from __future__ import annotations

import copy
from pathlib import Path

from rlcore.errors import UserError
from transformers import PreTrainedModel

from rlcore_trainer.algorithm_config import KlConfig
from rlcore_trainer.checkpoint import Checkpoints
from rlcore_trainer.second_model import load_second


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

    Raises:
        UserError: the one that is named cannot be used, or the one that a resumed run needs was not kept.
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
        if keep and source == folder and config.reference is None:
            raise UserError(
                "the KL term is measured from the policy as it was after the warm-up",
                found="no copy of it: the term had no weight when the run started",
                where="algorithm.kl.coefficient",
                mend=_instead(checkpoints),
            )
        reference = load_second(source, policy, where="algorithm.kl.reference")
    reference.requires_grad_(False)
    return reference


def _instead(checkpoints: Checkpoints | None) -> str:
    """Another reference: the oldest checkpoint is nearest to the one that is not there."""
    folders = checkpoints.folder.glob("[0-9]*/model") if checkpoints is not None else ()
    oldest = min(folders, key=lambda path: int(path.parent.name), default=None)
    near = f", such as a copy of {oldest}, which the run itself may remove later" if oldest is not None else ""
    return f"algorithm.kl.reference=FOLDER{near}"
