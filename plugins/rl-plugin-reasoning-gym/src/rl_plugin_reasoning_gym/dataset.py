"""Tasks of a mixture of generators, and demonstrations of the format of answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, islice
from typing import Any

from rlcore.errors import DataError, UserError, did_you_mean
from rlcore.types import Demonstration, Message, Task, derive_seed

from rl_plugin_reasoning_gym.config import DataConfig, Generator
from rl_plugin_reasoning_gym.environment import answer_message
from rl_plugin_reasoning_gym.library import LibraryError, library

TOGETHER = 8
"""Number of entries that are made at a time. Some take seconds."""
PATIENCE = 256
"""A generator has no new question if none of this many is new."""
APART = 2**30
"""Distance of the seeds of training and held-out tasks. Generators add the number of an entry to the seed."""
RIGHT = 0.5
"""Share of demonstrations with the right answer. The others have that of another task."""


class GeneratedTasks:
    """The questions of all tasks differ, also those of the two splits.

    Raises:
        UserError: a generator or a system prompt does not exist.
    """

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        known = library().ask("names")
        for generator in config.generators:
            if generator.name not in known:
                raise UserError(
                    f"reasoning-gym has no generator {generator.name!r}",
                    where="data.generators",
                    fix=did_you_mean(generator.name, known) or f"use one of {', '.join(known)}",
                )
        self._system = _system_messages(config.system_prompt)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, with the generators in the order of their shares."""
        return self._evaluation if split == "evaluation" else self._train

    def demonstrations(self, count: int, *, seed: int) -> Iterator[Demonstration]:
        """Training tasks with answers, most of which are wrong.

        Raises:
            DataError: no training task has an answer.
        """
        rng = random.Random(seed)
        answers: dict[str, list[str]] = {}
        solved = [task for task in self._train if task.fields["answer"] is not None]
        for task in solved:
            answers.setdefault(task.fields["name"], []).append(task.fields["answer"])
        if not solved:
            raise DataError(
                "these generators have no answers to imitate", where="data.generators", fix="warmup.steps=0"
            )
        for _ in range(count):
            task = rng.choice(solved)
            answer = task.fields["answer"] if rng.random() < RIGHT else rng.choice(answers[task.fields["name"]])
            yield Demonstration(messages=(*task.messages, answer_message(answer)))

    @cached_property
    def _evaluation(self) -> Sequence[Task]:
        return self._made("evaluation", self._config.evaluation, APART, set())

    @cached_property
    def _train(self) -> Sequence[Task]:
        return self._made("train", self._config.train, 0, {task.messages[-1].text for task in self._evaluation})

    def _made(self, split: str, number: int, distance: int, taken: set[str]) -> Sequence[Task]:
        """Tasks with new questions, divided among the generators that still have new ones."""
        generators = dict(enumerate(self._config.generators))
        streams = {n: self._entries(n, distance) for n in generators}
        counts, tasks = dict.fromkeys(generators, 0), list[Task]()
        while generators and len(tasks) < number:
            chosen = min(generators, key=lambda n: (counts[n] + 1) / generators[n].weight)
            drawn = islice(streams[chosen], PATIENCE)
            entry = next((entry for entry in drawn if entry["question"] not in taken), None)
            if entry is None:
                del generators[chosen]
                continue
            taken.add(entry["question"])
            tasks.append(self._task(f"{split}:{len(tasks)}", generators[chosen], entry))
            counts[chosen] += 1
        if not tasks:
            raise DataError(
                f"data.{split} has no task",
                found="the generators have too few different questions",
                where="data.generators",
                fix="set a smaller data.evaluation, or other options",
            )
        return tasks

    def _entries(self, position: int, distance: int) -> Iterator[Mapping[str, Any]]:
        seed = derive_seed(self._config.seed, position) % APART + distance
        generator = self._config.generators[position].model_dump(include={"name", "level", "options"})
        for start in count(0, TOGETHER):
            try:
                yield from library().ask("make", generator=generator, seed=seed, start=start, count=TOGETHER)
            except LibraryError as error:
                raise UserError(
                    f"the generator {generator['name']!r} makes no tasks",
                    found=error.line,
                    where=f"data.generators.{position}",
                    fix="change its level or options",
                ) from error

    def _task(self, id: str, generator: Generator, entry: Mapping[str, Any]) -> Task:
        messages = (*self._system, Message(role="user", content=entry["question"]))
        fields = {"name": generator.name, "level": generator.level, "options": generator.options}
        fields |= {"answer": entry["answer"], "metadata": entry["metadata"]}
        return Task(id=f"{generator.name}:{id}", messages=messages, fields=fields)


def _system_messages(prompt: str) -> tuple[Message, ...]:
    if not prompt:
        return ()
    known = library().ask("prompts")
    if prompt not in known and " " not in prompt:
        raise UserError(
            "data.system_prompt is neither a prompt of reasoning-gym nor a text with a space",
            found=repr(prompt),
            fix=f"use one of {', '.join(known)}",
        )
    return (Message(role="system", content=known.get(prompt, prompt)),)


__all__ = ["GeneratedTasks"]
