"""What a tokenizer that is built on the spot learns from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice

from rlcore.contracts import Dataset
from rlcore.errors import DataError
from rlcore.types import Demonstration, Message, thaw

SAMPLES = 2000
"""Demonstrations, and tasks, that are enough to know the words."""


def texts_of(dataset: Dataset) -> Iterable[str]:
    """The dataset's own ``texts``, or else its demonstrations with their calls and its training tasks."""
    own = getattr(dataset, "texts", None)
    return _texts_of_conversations(dataset) if own is None else own()


def _texts_of_conversations(dataset: Dataset) -> Iterator[str]:
    for demonstration in islice(_demonstrations(dataset), SAMPLES):
        yield from (f"tools: {tool.name}({', '.join(tool.parameters['properties'])})" for tool in demonstration.tools)
        yield from _texts_of(demonstration.messages)
    for task in dataset.tasks("train")[:SAMPLES]:
        yield from _texts_of(task.messages)


def _demonstrations(dataset: Dataset) -> Iterator[Demonstration]:
    """None where the dataset has none."""
    try:
        yield from getattr(dataset, "demonstrations", lambda count, seed: ())(SAMPLES, seed=0)
    except DataError:
        return


def _texts_of(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        if message.text:
            yield message.text.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
        for call in message.tool_calls:
            yield json.dumps({"name": call.name, "arguments": thaw(call.arguments or {})})
