"""Find conflicting settings of a supervised run before anything loads. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlcore.abilities import ConversationDataset, DemonstrationDataset
from rlcore.config.messages import Problem, ProblemsError
from rlcore.console.wording import counted
from rlcore.errors import DataError
from rlcore.models.folder import local_folder
from rlcore.runs.checkpoint_folder import check_checkpoint
from rlcore.session.tool_checks import check_tools, tool_named

from rlcore_trainer.checks import lora_check, metrics_check, model_check
from rlcore_trainer.config import SupervisedConfig

if TYPE_CHECKING:
    from rlcore.contracts import Dataset
    from rlcore.session.session import RunSession


def check(run: RunSession) -> list[str]:
    """Check the configuration and the data of a run.

    Returns:
        Notes on valid settings that may be unexpected, one sentence each.

    Raises:
        ProblemsError: settings conflict.
        DataError: the data has nothing to train on or to evaluate.
    """
    if run.resume_from is not None:
        check_checkpoint(run.resume_from, checksums=False)
    config: SupervisedConfig = run.options("trainer")
    problems = [*_conflicts(run, config), *metrics_check.problems(run, config.early_stop)]
    problems += [*lora_check.problems(run, reinforcement=False), *model_check.problems(run)]
    if problems:
        raise ProblemsError(problems)
    dataset = run.dataset
    if not isinstance(dataset, (ConversationDataset, DemonstrationDataset)):
        raise DataError(
            "supervised training needs a dataset of conversations or demonstrations",
            found=f"{type(dataset).__name__}, which provides neither",
            where=run.resolved.origin(("data", "id")),
            fix="data.id=chat, which reads files of conversations",
        )
    if isinstance(dataset, ConversationDataset) and not dataset.conversations("train") and not _demonstrates(dataset):
        raise DataError("the data has no training conversations", where=run.resolved.origin(("data", "train")))
    _check_tools(run, dataset)
    evaluated = config.held_out or (isinstance(dataset, ConversationDataset) and dataset.conversations("evaluation"))
    if run.config.evaluation.every and not evaluated:
        raise DataError(
            "evaluation needs held-out conversations",
            found="no evaluation data, and trainer.held_out is 0",
            where=run.resolved.origin(("evaluation", "every")),
            fix="data.evaluation=FILE, or trainer.held_out=64 (taken from the training data), or evaluation.every=0",
        )
    if config.rollouts and not run.dataset.tasks("evaluation"):
        raise DataError(
            "trainer.rollouts needs evaluation tasks",
            found="none in the data",
            where=run.resolved.origin(("trainer", "rollouts")),
            fix="add evaluation tasks to the dataset, or set trainer.rollouts=false",
        )
    return [*model_check.notes(run), *lora_check.notes(run)]


def _demonstrates(dataset: Dataset) -> bool:
    """Whether a dataset has demonstrations. Raises `DataError` if it says itself why it has none."""
    return isinstance(dataset, DemonstrationDataset) and next(iter(dataset.demonstrations(1, seed=0)), None) is not None


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


def _conflicts(run: RunSession, config: SupervisedConfig) -> Iterator[Problem]:
    def problem(key: str, value: Any, reason: str) -> Problem:
        origin = run.resolved.origin(tuple(key.split(".")))
        return Problem(kind="bad value", path=key, value=str(value), origin=origin, reason=reason)

    if config.lr_warmup_steps and config.lr_warmup_ratio:
        reason = "lr_warmup_steps is set too\nfix: remove one of them"
        yield problem("trainer.lr_warmup_ratio", config.lr_warmup_ratio, reason)
    if config.steps is not None and config.lr_warmup_steps >= config.steps:
        reason = f"the warm-up is as long as the run, which has {counted(config.steps, 'step')}"
        yield problem("trainer.lr_warmup_steps", config.lr_warmup_steps, reason)
    if not config.rollouts:
        return
    rewarded = bool(run.config.reward) or any(environment.reward for environment in run.config.mixture)
    there = {"environment": run.config.has_environment, "reward": rewarded}
    for name in [name for name, given in there.items() if not given]:
        yield problem("trainer.rollouts", True, f"evaluation rollouts need the table [{name}]")
    if not run.config.evaluation.every:
        yield problem("trainer.rollouts", True, "evaluation is disabled: evaluation.every is 0")
