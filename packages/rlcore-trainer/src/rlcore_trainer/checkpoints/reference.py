"""The reference policy of the KL term."""

from __future__ import annotations

from pathlib import Path

from rlcore_trainer.algorithms.config import KlConfig
from rlcore_trainer.checkpoints.checkpoint import Checkpoints
from rlcore_trainer.checks.resume_check import no_reference
from rlcore_trainer.policy.policy import Policy, Reference
from rlcore_trainer.policy.references import FrozenReference


def reference_policy(
    policy: Policy,
    config: KlConfig,
    *,
    checkpoints: Checkpoints | None,
    keep: bool,
    resumed: bool,
    start: Path | None = None,
) -> Reference | None:
    """Return the reference policy of a run; None if the KL coefficient is 0.

    Args:
        policy: the policy at the start of reinforcement learning, or at the checkpoint of a resumed run
        config: ``reference`` selects another model
        checkpoints: contain a copy of the reference if no other folder does
        keep: whether a warm-up changes the policy before reinforcement learning, so that resuming needs a copy
        resumed: use the saved copy, because the policy has changed since
        start: folder of the adapter that the run started from, if any

    Raises:
        UserError: the selected model cannot be used, or a resumed run has no copy of its reference.
    """
    if not config.coefficient:
        return None
    if config.reference is not None:
        return FrozenReference(policy.second(Path(config.reference), where="algorithm.kl.reference"))
    if not resumed:
        return policy.reference(moved=keep or start is not None)
    kept = checkpoints.folder / "reference" if checkpoints is not None else None
    if kept is not None and kept.is_dir():
        return policy.saved_reference(kept)
    if keep:
        raise no_reference(checkpoints.folder if checkpoints is not None else None)
    return policy.saved_reference(start)
