"""The text from which a tokenizer is built."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from rlcore.abilities import DemonstrationDataset, TextDataset
from rlcore.contracts import Dataset
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, thaw

SAMPLES = 2000
"""Maximum number of demonstrations, and of tasks, to read."""


def texts_of(dataset: Dataset) -> Iterable[str]:
    """The dataset's own ``texts``, or else its demonstrations with their calls and its training tasks."""
    return dataset.texts() if isinstance(dataset, TextDataset) else _texts_of_conversations(dataset)


def _texts_of_conversations(dataset: Dataset) -> Iterator[str]:
    for demonstration in islice(_demonstrations(dataset), SAMPLES):
        yield from (f"tools: {tool.name}({', '.join(tool.parameters['properties'])})" for tool in demonstration.tools)
        yield from _texts_of(demonstration.messages)
    for task in dataset.tasks("train")[:SAMPLES]:
        yield from _texts_of(task.messages)


def _demonstrations(dataset: Dataset) -> Iterator[Demonstration]:
    """None where the dataset has none."""
    if not isinstance(dataset, DemonstrationDataset):
        return
    try:
        yield from dataset.demonstrations(SAMPLES, seed=0)
    except DataError:
        return


def _texts_of(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        if message.text:
            yield message.text.encode("utf-8", "replace").decode()  # replace lone surrogates
        for call in message.tool_calls:
            yield json.dumps({"name": call.name, "arguments": thaw(call.arguments or {})})
