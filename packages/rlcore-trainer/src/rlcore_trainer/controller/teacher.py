"""The teacher of a run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rlcore.errors import UserError

from rlcore_trainer.algorithms.config import DistillationConfig
from rlcore_trainer.checks.teacher_check import KEY, require_same_text, teacher_folder
from rlcore_trainer.learner.distillation import Distillation
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.policy import DistilledPolicy

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def distillation(run: RunSession, trained: TrainedPolicy, config: DistillationConfig) -> Distillation | None:
    """Load the teacher of a run in this process, divided like the policy; None without one.

    Raises:
        UserError: the teacher cannot be used with the policy.
    """
    policy, strategy = trained.policy, trained.strategy
    if config.teacher is None:
        return None
    if not isinstance(policy, DistilledPolicy):
        raise UserError("distillation needs a policy over tokens", found=type(policy).__name__, where=KEY)
    # A run that is still training may get a better checkpoint meanwhile.
    folder = strategy.processes.from_main(partial(teacher_folder, config.teacher))
    require_same_text(run, policy.folder, folder)
    teacher = policy.second(folder, where=KEY, dtype=config.dtype)
    if config.divergence != "sampled" and not (policy.has_output and teacher.has_output):
        raise UserError(
            f"{config.divergence} needs models that are computed with packed rows",
            found=f"{'the teacher' if policy.has_output else 'the policy'} is computed with padding",
            where="algorithm.distillation.divergence",
            fix="algorithm.distillation.divergence=sampled",
        )
    if strategy.shards:
        strategy.shard(teacher.root)
    return Distillation(teacher, config, temperature=run.config.rollout.temperature)
