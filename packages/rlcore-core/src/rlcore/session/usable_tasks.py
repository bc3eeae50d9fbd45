"""Selects the tasks whose prompts the model can see: readable images, and a length within the limit."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlcore.console.wording import counted
from rlcore.contracts import ChatFormat, RendersImages
from rlcore.errors import UserError
from rlcore.images import ImageProcessor, image_size
from rlcore.types import Task, media_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableTasks:
    """The tasks of a split that can be used, and the number of the others by reason."""

    tasks: Sequence[Task]
    skipped: Mapping[str, int]

    def lines(self, split: str) -> list[str]:
        """A line for the log for each reason."""
        return [f"skipped   {counted(n, 'task')} in data.{split}: {reason}" for reason, n in self.skipped.items()]


def usable_tasks(tasks: Sequence[Task], chat_format: ChatFormat | None, limit: int | None) -> UsableTasks:
    """Remove tasks whose images are unreadable, or whose own messages are longer than the limit.

    Images are counted from their size; their pixels are not decoded. Messages that the environment adds, and its tools,
    are not counted.

    Args:
        tasks: the tasks of a split
        chat_format: renders the messages; None checks only the images
        limit: the maximum length of a prompt in tokens; None checks only the images
    """
    if limit is None and not any(message.images for task in tasks for message in task.messages):
        return UsableTasks(tasks=tasks, skipped={})
    kept: list[Task] = []
    skipped: Counter[str] = Counter()
    for task in tasks:
        try:
            sizes = _sizes(task)
            length = _length(task, chat_format, sizes) if chat_format is not None else 0
        except UserError as error:
            skipped[error.message] += 1
            continue
        if limit is not None and length > limit:
            skipped[f"a prompt of more than {limit} tokens"] += 1
        else:
            kept.append(task)
    return UsableTasks(tasks=kept, skipped=dict(skipped))


def _sizes(task: Task) -> dict[str, tuple[int, int]]:
    """Width and height of each image that the messages of a task refer to."""
    wanted = {name for message in task.messages for name in message.images}
    if not wanted:
        return {}
    images = {media_hash(data): data for data in task.images}
    if missing := wanted - images.keys():
        raise UserError("a message refers to an image that the task does not have", found=f"{min(missing)[:12]}…")
    return {name: image_size(images[name]) for name in sorted(wanted)}


def _length(task: Task, chat_format: ChatFormat, sizes: Mapping[str, tuple[int, int]]) -> int:
    """The number of tokens of a task's first prompt. One small image stands in for each image."""
    if not task.messages:
        return 0
    if not sizes:
        return len(chat_format.prompt(task.messages))
    assert isinstance(chat_format, RendersImages), "checked before"
    processor = chat_format.image_processor
    assert processor is not None, "checked before"
    stand_in = _smallest(processor)
    ids, media = chat_format.prompt_with_images(task.messages, (), dict.fromkeys(sizes, stand_in))
    shown = (processor.tokens(*sizes[span.sha256]) for span in media)
    return len(ids) - sum(span.length for span in media) + sum(rows * columns for rows, columns in shown)


def _smallest(processor: ImageProcessor) -> bytes:
    """An encoded image of one visual token."""
    from PIL import Image

    written = io.BytesIO()
    Image.new("L", (processor.token_side, processor.token_side)).save(written, format="PNG")
    return written.getvalue()
