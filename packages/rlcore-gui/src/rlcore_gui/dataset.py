"""The datasets of GUI agents: tasks of one step or of whole episodes, from prepared files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from rlcore.config.schema import LARGEST, Files, Table, Texts
from rlcore.errors import DataError
from rlcore.images import check_image, encode_image
from rlcore.types import Demonstration, Message, Task

from rlcore_gui.actions import Action
from rlcore_gui.answers import Answer, render
from rlcore_gui.prepare import files
from rlcore_gui.prepare.pseudo_labels import PROGRESS, REASONING, SUMMARY
from rlcore_gui.prompts import PromptStyle, action_history, instructions
from rlcore_gui.steps import GuiStep, steps_of
from rlcore_gui.tasks import Shown, episode_task, step_task

GENERATED = "generated"
SPLITS = ("train", "evaluation")
TOKENIZER_SAMPLES = 2000
LABEL = "label"
"""The entry of `GuiStep.source` with the pseudo-label of the step."""

Recorded = Sequence[Shown | GuiStep]
"""The steps of an episode in order. A step without its screenshot is no task, but part of the history."""


class GuiDataConfig(Table):
    """``[data]``: prepared files, and how their steps become tasks."""

    id: str = ""
    """Id of the dataset."""
    train: Files
    """Files of ``rlcore data prepare`` (.parquet)."""
    evaluation: Texts = []
    """Files of held-out episodes."""
    images: str | None = None
    """Folder of the screenshots, if it is not the one that the files name."""
    episodes: bool = False
    """Whether a task is a whole episode, in which the agent's own summaries are its memory, or a single step."""
    memory: Literal["none", "actions", "oracle"] = "actions"
    """History in the prompt of a single step: none, the earlier actions, or ``oracle``, what a teacher wrote about the
    previous step (``rlcore data prepare`` with ``memory``)."""
    history: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Number of earlier actions in the prompt (``memory = "actions"``); None shows all."""
    next_step: bool = False
    """Add the next step of the episode to single steps, for rewards that need it."""
    limit: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    """Use only the first tasks of each split; None uses all. All screenshots of a split are kept in memory."""


@dataclass(slots=True)
class _Split:
    tasks: list[Task] = field(default_factory=list)
    episodes: set[str] = field(default_factory=set)
    skipped: int = 0


class GuiDataset:
    """Tasks from prepared files. A plugin defines the prompt, and may override `generated`."""

    style: ClassVar[PromptStyle]
    benchmark: ClassVar[str]
    """The name of the data set, which its tasks have as a field."""

    def __init__(self, config: GuiDataConfig) -> None:
        self._config = config
        self._splits: dict[str, _Split] = {}
        self._instructions = instructions(self.style)

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in file order; none without files.

        Raises:
            DataError: a file or screenshot cannot be read, files have no task, or both splits have the same episode.
        """
        return self._split(split).tasks

    def skipped(self, split: str) -> int:
        """Number of recorded steps of a split that are no tasks."""
        return self._split(split).skipped

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Training steps, answered with their pseudo-labels, in shuffled rounds.

        Raises:
            DataError: no training step has a pseudo-label, or tasks are episodes.
        """
        found = list(self.conversations("train"))
        if not found:
            raise DataError(
                "demonstrations need steps with pseudo-labels",
                found="episodes as tasks" if self._config.episodes else "no step with a label",
                where=", ".join(self._config.train),
                fix="set data.episodes=false" if self._config.episodes else "prepare the data with labels=FILE",
            )
        rng = random.Random(seed)
        rounds = chain.from_iterable(rng.sample(found, len(found)) for _ in repeat(None))
        return islice(rounds, count)

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """The single steps of a split that have a pseudo-label, answered with it and the recorded action."""
        if self._config.episodes or (split == "evaluation" and not self._config.evaluation):
            return []
        found: list[Demonstration] = []
        for task in self.tasks(split):
            (step,) = steps_of(task)
            if (text := self._answer(step)) is not None:
                answer = Message(role="assistant", content=text)
                found.append(Demonstration(messages=(*task.messages, answer), images=task.images[:1]))
        return found

    def texts(self) -> Iterable[str]:
        """Prompts and answers for training a tokenizer."""
        for task in self.tasks("train")[:TOKENIZER_SAMPLES]:
            yield from (message.text for message in task.messages)
            yield from (text for step in steps_of(task) if (text := self._answer(step)) is not None)

    def generated(self, split: str) -> Iterable[Recorded]:
        """Episodes for ``data.train = "generated"``. Raises `DataError` unless the plugin generates data."""
        fix = "give a file of rlcore data prepare"
        raise DataError("this dataset generates no data", found=GENERATED, where=f"data.{split}", fix=fix)

    def _split(self, split: str) -> _Split:
        if split not in SPLITS:
            raise DataError("unknown split", found=split, fix="use train or evaluation")
        if split not in self._splits:
            loaded = self._load(split)
            for other, known in self._splits.items():
                if shared := sorted(known.episodes & loaded.episodes):
                    raise DataError(
                        f"data.{split} and data.{other} have the same episodes",
                        found=f"{len(shared)}, such as {shared[0]}",
                        fix="hold out episodes with rlcore data prepare subset=FILE, and use that file for evaluation",
                    )
            self._splits[split] = loaded
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        config, loaded = self._config, _Split()
        names = config.train if split == "train" else config.evaluation
        if not names:  # nothing is held out
            return loaded
        remembered = forgotten = 0
        for recorded in chain.from_iterable(self._episodes(name, split) for name in names):
            shown = [each for each in recorded if isinstance(each, Shown)]
            loaded.skipped += len(recorded) - len(shown)
            loaded.episodes |= {each.step.episode_id for each in shown[:1]}
            remembered += sum(each.step.memory is not None for each in shown)
            forgotten += sum(each.step.memory is None for each in shown[1:])
            loaded.tasks += self._tasks_of(recorded, shown)
            if config.limit is not None and len(loaded.tasks) >= config.limit:
                del loaded.tasks[config.limit :]
                break
        if not loaded.tasks:
            fix = "prepare files with at least one step whose screenshot exists"
            raise DataError(f"data.{split} has no task", where=", ".join(names), fix=fix)
        if config.memory == "oracle" and not config.episodes and forgotten and not remembered:
            raise DataError(
                "data.memory=oracle needs the summaries of a teacher",
                found="no step with a memory",
                where=", ".join(names),
                fix="prepare the files with labels=FILE memory=true, or set data.memory=actions",
            )
        return loaded

    def _episodes(self, name: str, split: str) -> Iterator[Recorded]:
        if name == GENERATED:
            yield from self.generated(split)
            return
        path = Path(name).expanduser()
        folder = Path(self._config.images or files.origin(path).images).expanduser()
        for steps in files.read(path, images=folder):
            yield [
                step if step.image is None else Shown(step=step, screenshot=_screenshot(step, folder)) for step in steps
            ]

    def _tasks_of(self, recorded: Recorded, shown: Sequence[Shown]) -> Iterator[Task]:
        config = self._config
        if config.episodes:
            if shown:
                yield episode_task(shown, instructions=self._instructions, benchmark=self.benchmark)
            return
        following = dict(zip((each.step.row_id for each in shown), shown[1:], strict=False)) if config.next_step else {}
        before: list[Action] = []
        for each in recorded:
            step = each.step if isinstance(each, Shown) else each
            if isinstance(each, Shown):
                yield step_task(
                    each,
                    instructions=self._instructions,
                    benchmark=self.benchmark,
                    memory=config.memory,
                    history=self._history(step, before),
                    following=following.get(step.row_id),
                )
            if self.style.table.find(step.action.name) is not None:
                before.append(step.action)

    def _history(self, step: GuiStep, before: Sequence[Action]) -> str | None:
        if self._config.memory == "actions":
            return action_history(before, self.style.table, last=self._config.history)
        return step.memory if self._config.memory == "oracle" else None

    def _answer(self, step: GuiStep) -> str | None:
        """The answer of a step with its pseudo-label; None without one that fits the grammar."""
        label = step.source.get(LABEL)
        if label is None:
            return None
        try:
            answer = Answer(
                progress=label[PROGRESS], reasoning=label[REASONING], action=step.action, summary=label[SUMMARY]
            )
            return render(answer, self.style.table)
        except ValueError:
            return None


def _screenshot(step: GuiStep, folder: Path) -> bytes:
    assert step.image is not None
    try:
        data = encode_image(step.image.relative_to(folder), folder=folder)
        check_image(data)
    except DataError as error:
        fix = error.fix or "restore the file, set data.images, or prepare the data again"
        where = f"{error.where or step.image}, step {step.row_id}"
        raise DataError(error.message, found=error.found, where=where, fix=fix) from None
    return data


__all__ = ["GENERATED", "GuiDataConfig", "GuiDataset", "Recorded"]
