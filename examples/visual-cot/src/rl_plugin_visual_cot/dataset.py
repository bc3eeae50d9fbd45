"""The dataset: files of questions about pictures, or generated ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path

from rlcore import DataError, Demonstration, Task

from rl_plugin_visual_cot.config import DataConfig
from rl_plugin_visual_cot.prompts import answered, opening
from rl_plugin_visual_cot.questions import describe, generate, guess
from rl_plugin_visual_cot.rows import Reason, Row, RowReader, UnusableRow
from rl_plugin_visual_cot.scenes import picture

GENERATED = "generated"
SPLITS = ("train", "evaluation")
TOKENIZER_SAMPLES = 2000


@dataclass(slots=True)
class _Split:
    tasks: list[Task] = field(default_factory=list)
    skipped: Counter[Reason] = field(default_factory=Counter)


class VisualCotData:
    """Tasks with the fields ``question``, ``answer``, ``reasoning`` and ``image_id``, and their conversations."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._splits: dict[str, _Split] = {}
        self._blank: dict[tuple[int, int], bytes] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of ``train`` or ``evaluation``, in file order, with ids ``FILE:ROW``.

        Raises:
            DataError: a file cannot be read, a row cannot be used (unless rows are skipped), or no row can be used.
        """
        return self._split(split).tasks

    def conversations(self, split: str) -> Sequence[Demonstration]:
        """The tasks, answered with the chain of thought of the row. Raises as `tasks`."""
        return [conversation(task) for task in self.tasks(split)]

    def demonstrations(self, count: int, *, seed: int) -> Iterable[Demonstration]:
        """Generated conversations about new pictures, or training conversations shuffled anew in each pass."""
        if GENERATED in self._config.train:
            rng = random.Random(f"demonstrations {self._config.drawn_seed} {seed}")
            return (conversation(task) for task in self._generated(rng, count, "demonstration", held_out=False))
        rng, tasks = random.Random(seed), self.tasks("train")
        passes = chain.from_iterable(rng.sample(tasks, len(tasks)) for _ in repeat(None))
        return (conversation(task) for task in islice(passes, count))

    def skipped(self, split: str) -> int:
        """Number of rows of a split that cannot be used (``on_error = "skip"``)."""
        return self._split(split).skipped.total()

    def skipped_by_reason(self, split: str) -> Mapping[str, int]:
        """`skipped` by `Reason`."""
        return {str(reason): count for reason, count in self._split(split).skipped.most_common()}

    def texts(self) -> Iterable[str]:
        """Texts of conversations for training a tokenizer."""
        for one in islice(self.demonstrations(TOKENIZER_SAMPLES, seed=0), TOKENIZER_SAMPLES):
            yield from (message.text.encode("utf-8", "replace").decode() for message in one.messages)

    def _split(self, split: str) -> _Split:
        if split not in SPLITS:
            raise DataError("unknown split", found=split, fix="use train or evaluation")
        if split not in self._splits:
            self._splits[split] = self._load(split)
        return self._splits[split]

    def _load(self, split: str) -> _Split:
        config, loaded = self._config, _Split()
        names = config.train if split == "train" else config.evaluation
        reader: RowReader | None = None
        for name in names:
            if name == GENERATED:
                count = config.questions if split == "train" else config.held_out
                rng = random.Random(f"{split} {config.drawn_seed}")
                loaded.tasks += self._generated(rng, count, split, held_out=split != "train")
                continue
            reader = reader or RowReader(self._image_folder(split))
            loaded.tasks += self._tasks_of(Path(name).expanduser(), reader, loaded.skipped)
        if not loaded.tasks:
            skipped = ", ".join(f"{reason}: {count}" for reason, count in loaded.skipped.most_common())
            where, fix = ", ".join(names), "set data.on_error=raise to see the first error" if skipped else "add rows"
            raise DataError(f"data.{split} has no usable row", found=skipped or "no rows", where=where, fix=fix)
        if config.limit is not None:
            del loaded.tasks[config.limit :]
        return loaded

    def _image_folder(self, split: str) -> Path:
        config = self._config
        name = (config.evaluation_images if split == "evaluation" else None) or config.images
        if name is None:
            raise DataError(
                "files of questions need a folder of pictures", found="data.images is not set", fix="set data.images"
            )
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise DataError("the folder of pictures does not exist", where=str(folder.absolute()), fix="correct it")
        return folder

    def _tasks_of(self, path: Path, reader: RowReader, skipped: Counter[Reason]) -> Iterator[Task]:
        for line, row in reader.read(path):
            if isinstance(row, UnusableRow):
                if self._config.on_error == "raise":
                    fix = "correct the row, or skip such rows with data.on_error=skip"
                    where = f"{path}, row {line}"
                    raise DataError(f"unusable row, {row.reason}", found=row.found, where=where, fix=fix)
                skipped[row.reason] += 1
            else:
                yield self._task(f"{path.stem}:{line}", row)

    def _generated(self, rng: random.Random, count: int, name: str, *, held_out: bool) -> Iterator[Task]:
        config = self._config
        stream = generate(rng, kinds=config.kinds, most=config.objects, held_out=held_out, others=config.others)
        for number, asked in enumerate(islice(stream, count)):
            question = asked.question
            if name == "demonstration" and rng.random() < config.descriptions:
                question = describe(asked.scene)
            elif name == "demonstration" and rng.random() < config.guesses:
                question = guess(rng, question, config.objects)
            row = Row(
                image_id=f"{name}-{number}",
                question=question.text,
                reasoning=question.reasoning,
                answer=question.answer,
                image=picture(asked.scene),
            )
            yield self._task(f"{name}:{number}", row)

    def _task(self, name: str, row: Row) -> Task:
        image = self._empty(row.image) if self._config.blank else row.image
        return Task(
            id=name,
            messages=opening(row.question, image, self._config.system_prompt),
            images=(image,),
            fields={
                "question": row.question,
                "answer": row.answer,
                "reasoning": row.reasoning,
                "image_id": row.image_id,
            },
        )

    def _empty(self, image: bytes) -> bytes:
        """An empty picture of the same size."""
        from rlcore.images import encode_image, image_size

        size = image_size(image)
        if size not in self._blank:
            from PIL import Image

            self._blank[size] = encode_image(Image.new("RGB", size, (127, 127, 127)))
        return self._blank[size]


def conversation(task: Task) -> Demonstration:
    """Return a task, answered with its chain of thought."""
    answer = answered(str(task.fields["reasoning"]), str(task.fields["answer"]))
    return Demonstration(messages=(*task.messages, answer), images=task.images)


__all__ = ["VisualCotData", "conversation"]
