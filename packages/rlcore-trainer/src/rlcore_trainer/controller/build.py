"""Build the parts of a run from its plan: policy, processes, checkpoints and rollouts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.episodes.evaluation import evaluation_request

from rlcore_trainer.checkpoints import checkpoint
from rlcore_trainer.checkpoints.checkpoint import Checkpoints, Restored
from rlcore_trainer.checkpoints.start import starting_policy
from rlcore_trainer.config import TrainerTable
from rlcore_trainer.controller.rollouts import Rollouts
from rlcore_trainer.controller.session import TrainingSession
from rlcore_trainer.controller.shared_sampler import SharedSampler
from rlcore_trainer.distributed.ranks import Ranks
from rlcore_trainer.distributed.strategy import Strategy
from rlcore_trainer.learner.trained_policy import TrainedPolicy
from rlcore_trainer.policy.policy import Policy

if TYPE_CHECKING:
    from rlcore.session.session import RunSession


def training_session(
    run: RunSession,
    settings: TrainerTable,
    *,
    dropout: bool = False,
    load: Callable[..., Policy] = starting_policy,
) -> tuple[TrainingSession, Restored | None]:
    """Load the policy of a run from its model or from the checkpoint, in each process.

    Args:
        run: the run
        settings: the optimiser settings
        dropout: whether to apply the adapter's dropout
        load: loads the policy, with the arguments of `starting_policy`

    Returns:
        The session, and the contents of the checkpoint of a resumed run.

    Raises:
        UserError: the model or the checkpoint cannot be used.
    """
    strategy: Strategy = run.load("strategy", run.config.strategy.id)(run.options("strategy"))
    saving = run.config.checkpoint
    checkpoints = Checkpoints(run.directory.path / "checkpoints", keep=saving.keep) if run.directory else None
    device = strategy.device(run.config.model.device)
    folder: Path = strategy.processes.from_main(run.model_folder)
    read = checkpoints.resume if checkpoints else checkpoint.read
    restored = read(run.resume_from) if run.resume_from is not None else None
    policy = load(run, folder, device=device, dropout=dropout)
    if settings.gradient_checkpointing:
        policy.recompute_activations()
    trained = TrainedPolicy(policy, strategy, settings, progress=run.progress)
    if restored is not None:
        trained.restore(restored.state)
    session = TrainingSession(
        trained,
        Ranks(strategy.processes, lambda: run.stop_requested),
        run,
        checkpoints=checkpoints,
        resumed=restored.progress if restored is not None else None,
        save_every=saving.every,
        best=saving.best,
        early_stop=settings.early_stop,
    )
    return session, restored


def all_checkpoints(run: RunSession, session: TrainingSession) -> Checkpoints | None:
    """Return the checkpoints of a run, also in a process that does not write them."""
    if session.checkpoints is None and run.resume_from is not None:
        return Checkpoints(run.resume_from.parent, keep=run.config.checkpoint.keep)
    return session.checkpoints


def rollouts(run: RunSession, session: TrainingSession, *, check_every: int = 1) -> Rollouts:
    """Return the rollouts of a run, in each process."""
    ranks = session.ranks
    shared = ranks.count > 1 and run.shares_sampler
    divided = session.trained.strategy.shards
    return Rollouts(
        SharedSampler(run.sampler, session.policy, ranks.processes, divided=divided)
        if shared
        else run.sampler(session.policy),
        session,
        run,
        evaluation=partial(evaluation_request, run.config),
        check_every=check_every,
    )
