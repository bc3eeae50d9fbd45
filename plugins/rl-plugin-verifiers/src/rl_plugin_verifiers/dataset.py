"""The tasks of a taskset, read in parts, and demonstrations of their answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from rlcore.errors import DataError, EnvironmentFailure
from rlcore.types import Demonstration, Message, Task

from rl_plugin_verifiers.config import DataConfig, EnvironmentConfig
from rl_plugin_verifiers.messages import read_message
from rl_plugin_verifiers.process import process_of, world_of

TOGETHER = 64
"""Number of tasks that are read at a time. With the limit of a task, they fit into a line of the process."""
READING_S = 600.0
"""Time to read them. Some tasksets download their data first."""
RIGHT = 0.5
"""Share of demonstrations with the right answer. The others have that of another task."""


class TasksetData:
    """The first tasks of the taskset are held out.

    Args:
        config: the table ``[data]``
        environment: creates an environment of the run, which has the taskset
    """

    def __init__(self, config: DataConfig, *, environment: Callable[[], Any] | None = None) -> None:
        self._config = config
        self._taskset = environment().config if environment is not None else EnvironmentConfig()

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of ``train`` or ``evaluation``."""
        return self._evaluation if split == "evaluation" else self._train

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Training tasks with an answer, which is right for a share of `RIGHT`.

        Raises:
            DataError: the tasks have no answers.
        """
        name = self._config.answer
        answers = [str(task.fields["data"][name]) for task in self._train if name in task.fields["data"]]
        if len(answers) < len(self._train):
            raise DataError(
                "the tasks have no answers that a warm-up could imitate",
                found=f"data.answer={name!r}, which {len(answers)} of {len(self._train)} tasks have",
                fix="set data.answer to the field with the answer, or warmup.steps=0",
            )
        rng = random.Random(seed)
        for _ in range(count):
            number = rng.randrange(len(self._train))
            answer = answers[number] if rng.random() < RIGHT else rng.choice(answers)
            yield Demonstration(messages=(*self._train[number].messages, Message(role="assistant", content=answer)))

    @cached_property
    def _evaluation(self) -> Sequence[Task]:
        return self._read(0, self._config.evaluation, self._config.evaluation_options)

    @cached_property
    def _train(self) -> Sequence[Task]:
        return self._read(0 if self._config.evaluation_options else self._config.evaluation, self._config.train, {})

    def _read(self, start: int, count: int, options: Mapping[str, Any]) -> Sequence[Task]:
        tasks: dict[str, Task] = {}
        position, end = start, start + count
        try:
            while position < end:
                rows = process_of(self._taskset).ask(
                    "tasks",
                    world=world_of(self._taskset, options),
                    start=position,
                    count=min(TOGETHER, end - position),
                    timeout_s=READING_S,
                )
                for number, row in enumerate(rows, position):
                    task = _task(row, options)
                    if task.id in tasks:
                        raise DataError("two tasks have the same key", found=task.id, where=f"task {number}")
                    tasks[task.id] = task
                position += len(rows)
                if not rows:
                    break
        except EnvironmentFailure as error:
            raise DataError(f"the taskset cannot be read: {error}", where=self._taskset.taskset) from None
        except ValueError as error:
            raise DataError(str(error), where=self._taskset.taskset) from None
        if not tasks:
            raise DataError(
                "the taskset has no task",
                found=f"it has at most {start} tasks",
                where=self._taskset.taskset,
                fix="set a smaller data.evaluation",
            )
        return list(tasks.values())


def _task(row: Mapping[str, Any], options: Mapping[str, Any]) -> Task:
    messages = tuple(read_message(message) for message in row["messages"])
    return Task(id=row["key"], messages=messages, fields={"data": row["data"], "options": dict(options)})


__all__ = ["TasksetData"]
