"""Find conflicting settings of a supervised run before anything loads. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlcore.abilities import ConversationDataset, DemonstrationDataset, PreferenceDataset
from rlcore.checks import Finding, failure, unread, warning
from rlcore.console.wording import counted
from rlcore.errors import DataError
from rlcore.models.folder import local_folder
from rlcore.runs.checkpoint_folder import check_checkpoint
from rlcore.session.model_inputs import check_tools, tool_named

from rlcore_trainer.checks import lora_check, metrics_check, model_check
from rlcore_trainer.checks.demonstrations import demonstrates
from rlcore_trainer.config import OfflineConfig, SupervisedConfig

if TYPE_CHECKING:
    from rlcore.contracts import Dataset
    from rlcore.session.session import RunSession


def check(run: RunSession) -> Iterator[Finding]:
    """Find conflicting settings, and data with nothing to train on or to evaluate.

    Raises:
        DataError: the dataset is of the wrong kind.
    """
    config: SupervisedConfig = run.options("trainer")
    found = [*of_passes(run, config), *lora_check.check(run, reinforcement=False)]
    yield from found
    if all(one.status != "fail" for one in found):
        yield from _of_data(run, config)


def _of_data(run: RunSession, config: SupervisedConfig) -> Iterator[Finding]:
    dataset = run.dataset
    if not isinstance(dataset, (ConversationDataset, DemonstrationDataset)):
        raise DataError(
            "supervised training needs a dataset of conversations or demonstrations",
            found=f"{type(dataset).__name__}, which provides neither",
            where=run.resolved.origin(("data", "id")),
            fix="data.id=chat, which reads files of conversations"
            + (", or trainer.id=preference for preferences" if isinstance(dataset, PreferenceDataset) else ""),
        )
    if isinstance(dataset, ConversationDataset) and not dataset.conversations("train") and not demonstrates(dataset):
        yield failure("data.train", "the data has no training conversations")
    _check_tools(run, dataset)
    evaluated = config.held_out or (isinstance(dataset, ConversationDataset) and dataset.conversations("evaluation"))
    yield from of_evaluation(run, config, "conversations", evaluated=bool(evaluated))


def _check_tools(run: RunSession, dataset: Dataset) -> None:
    """Reject a chat format that cannot show the tools of the conversations, as those of the first that has some."""
    folder = local_folder(run.config.model.path)
    if folder is None:
        return
    conversations = dataset.conversations("train") if isinstance(dataset, ConversationDataset) else ()
    if not conversations and isinstance(dataset, DemonstrationDataset):
        conversations = list(dataset.demonstrations(1, seed=0))
    for one in conversations:
        called = {call.name for message in one.messages for call in message.tool_calls}
        if tools := one.tools or [tool_named(name) for name in sorted(called)]:
            check_tools(run, folder, tools)
            return


def of_passes(run: RunSession, config: OfflineConfig) -> Iterator[Finding]:
    """Find conflicting settings of a trainer that makes passes over stored examples, and an unusable model."""
    if run.resume_from is not None:
        check_checkpoint(run.resume_from, checksums=False)
    yield from metrics_check.check(run, config.early_stop)
    yield from model_check.check(run)
    if config.lr_warmup_steps and config.lr_warmup_ratio:
        yield failure("trainer.lr_warmup_ratio", "lr_warmup_steps is set too", "remove one of them")
    if config.steps is not None and config.lr_warmup_steps >= config.steps:
        reason = f"the warm-up is as long as the run, which has {counted(config.steps, 'step')}"
        yield failure("trainer.lr_warmup_steps", reason, f"fewer than {config.steps}")
    if config.held_out and not run.config.evaluation.every:
        yield warning("trainer.held_out has no effect, because evaluation is disabled: evaluation.every is 0")
    reason, fix = "a trainer on stored examples has no groups that could be sampled ahead", "remove it"
    yield from unread(run.resolved, "schedule", ["ahead"], reason, fix)
    if not config.tries_tasks:
        return
    rewarded = bool(run.config.reward) or any(environment.reward for environment in run.config.mixture)
    there = {"environment": run.config.has_environment, "reward": rewarded}
    for name in [name for name, given in there.items() if not given]:
        yield failure("trainer.rollouts", f"evaluation rollouts need the table [{name}]", "add it, or remove this key")
    if not run.config.evaluation.every:
        yield failure("trainer.rollouts", "evaluation is disabled: evaluation.every is 0", "evaluation.every=10")


def of_evaluation(run: RunSession, config: OfflineConfig, examples: str, *, evaluated: bool) -> Iterator[Finding]:
    """Find data with nothing to evaluate.

    Args:
        run: the run
        config: its trainer's
        examples: what the trainer reads, such as ``conversations``
        evaluated: whether there are held-out ones
    """
    if run.config.evaluation.every and not evaluated:
        reason = f"evaluation needs held-out {examples}: there is no evaluation data, and trainer.held_out is 0"
        fix = "data.evaluation=FILE, or trainer.held_out=64 (taken from the training data), or evaluation.every=0"
        yield failure("evaluation.every", reason, fix)
    if config.tries_tasks and not run.dataset.tasks("evaluation"):
        fix = "add evaluation tasks to the dataset, or set trainer.rollouts=false"
        yield failure("trainer.rollouts", "it needs evaluation tasks, and the data has none", fix)
