"""What contradicts itself in a supervised run, found before anything loads. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlcore.config.messages import Problem, ProblemsError
from rlcore.errors import DataError
from rlcore.wording import counted

from rlcore_trainer import lora_check
from rlcore_trainer.supervised_config import SupervisedConfig

if TYPE_CHECKING:
    from rlcore.run import Run


def check(run: Run) -> list[str]:
    """Raise what the run would end with later.

    Returns:
        What is allowed and may surprise, one sentence each.

    Raises:
        ProblemsError: keys that contradict each other.
        DataError: there is nothing to imitate, or nothing to evaluate by.
    """
    config: SupervisedConfig = run.options("trainer")
    if problems := [*_contradictions(run, config), *lora_check.problems(run, reinforcement=False)]:
        raise ProblemsError(problems)
    conversations = getattr(run.dataset, "conversations", None)
    if conversations is None and getattr(run.dataset, "demonstrations", None) is None:
        raise DataError(
            "supervised training needs a dataset of conversations or demonstrations",
            found=f"{type(run.dataset).__name__} has neither",
            where=run.resolved.origin(("data", "id")),
            mend="data.id=chat reads files of conversations",
        )
    if conversations is not None and not conversations("train"):
        raise DataError("the data has no conversations to train on", where=run.resolved.origin(("data", "train")))
    evaluated = config.held_out or (conversations is not None and conversations("evaluation"))
    if run.config.evaluation.every and not evaluated:
        raise DataError(
            "an evaluation needs conversations that are not trained on",
            found="none: the data has none for it, and trainer.held_out is 0",
            where=run.resolved.origin(("evaluation", "every")),
            mend="data.evaluation=FILE, or trainer.held_out=64 (taken from the training data), or evaluation.every=0",
        )
    if config.rollouts and not run.dataset.tasks("evaluation"):
        raise DataError(
            "trainer.rollouts needs evaluation tasks",
            found="none in the data",
            where=run.resolved.origin(("trainer", "rollouts")),
            mend="give the dataset some, or trainer.rollouts=false",
        )
    return lora_check.notes(run)


def _contradictions(run: Run, config: SupervisedConfig) -> Iterator[Problem]:
    def problem(key: str, value: Any, reason: str) -> Problem:
        origin = run.resolved.origin(tuple(key.split(".")))
        return Problem(kind="bad value", path=key, value=str(value), origin=origin, reason=reason)

    if config.warmup_steps and config.warmup_ratio:
        reason = "warmup_steps says the same in steps\nfix: give one of them"
        yield problem("trainer.warmup_ratio", config.warmup_ratio, reason)
    if config.steps is not None and config.warmup_steps >= config.steps:
        reason = f"the learning rate would never leave its warm-up: the run has {counted(config.steps, 'step')}"
        yield problem("trainer.warmup_steps", config.warmup_steps, reason)
    if not config.rollouts:
        return
    there = {"environment": bool(run.config.environment.id), "reward": bool(run.config.reward)}
    for name in [name for name, given in there.items() if not given]:
        yield problem("trainer.rollouts", True, f"tasks are tried in an environment and judged: there is no {name}")
    if not run.config.evaluation.every:
        yield problem("trainer.rollouts", True, "nothing is evaluated: evaluation.every is 0")
