"""An environment with chat messages, for the parent. Its methods may be plain or ``async``."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import importlib
import inspect
from types import SimpleNamespace
from typing import Any

from .options import options_of


class Chat:
    """Creates the environment of one episode.

    Args:
        target: the class, or a function that returns the environment
        arguments: keyword arguments, or ``$options`` with the keys of a run's table
    """

    def __init__(self, target: Any, arguments: dict[str, Any]) -> None:
        self._types = importlib.import_module("rlcore.types")
        self._loop = asyncio.new_event_loop()
        given = options_of(arguments["$options"], target) if "$options" in arguments else []
        self._environment = target(*given) if given or "$options" in arguments else target(**arguments)
        for name in ("reset", "step"):
            if not callable(getattr(self._environment, name, None)):
                kind = type(self._environment).__name__
                raise TypeError(f"expected an environment with reset and step, found {kind} without {name}")
        self._context: Any = None

    def description(self) -> Any:
        """Nothing."""
        return None

    def ask(self, name: str, positional: list[Any], named: dict[str, Any]) -> Any:
        """Reset or step the environment; see `Environment`."""
        if name == "reset":
            return self._sent(self._reset(**named), "Observation")
        if name == "step":
            return self._sent(self._awaited(self._environment.step(self._message(named["action"]))), "Step")
        if name == "cut":
            return self._cut(named["written"])
        raise AttributeError(f"{name!r} is neither reset, step nor cut")

    def _reset(self, task: dict[str, Any], images: list[bytes], seed: int, sibling: int, drawn: int) -> Any:
        kinds = self._types
        messages = tuple(map(self._message, task["messages"]))
        rest = {"fields": task["fields"], "environment": task["environment"], "images": tuple(images)}
        made = kinds.Task(id=task["id"], messages=messages, **rest)
        given = {}
        if "context" in inspect.signature(self._environment.reset).parameters:
            given["context"] = self._context = context_of(made, sibling, drawn)
        return self._awaited(self._environment.reset(made, seed=seed, **given))

    def _cut(self, written: dict[str, Any] | None) -> Any:
        cut = getattr(self._environment, "cut", None)
        step = cut and self._awaited(cut(None if written is None else self._message(written)))
        return None if step is None else self._sent(step, "Step")

    def _message(self, data: dict[str, Any]) -> Any:
        kinds = self._types
        content = data["content"]
        if not isinstance(content, str):
            content = tuple(kinds.TextPart(**part) if "text" in part else kinds.ImagePart(**part) for part in content)
        calls = tuple(kinds.ToolCall(**call) for call in data["tool_calls"])
        return kinds.Message(**{**data, "content": content, "tool_calls": calls})

    def _awaited(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value

        async def wait() -> Any:
            return await value

        return self._loop.run_until_complete(wait())

    def _sent(self, value: Any, expected: str) -> Any:
        if type(value).__name__ != expected or not dataclasses.is_dataclass(value):
            raise TypeError(f"expected {'an' if expected[0] in 'AEIOU' else 'a'} {expected}, found {type(value)}")
        images: list[bytes] = []
        return {"value": tree_of(value, images), "images": images}

    def close(self) -> None:
        """Close the environment, what its episode has opened, and its event loop."""
        try:
            if callable(getattr(self._environment, "close", None)):
                self._awaited(self._environment.close())
        finally:
            try:
                if self._context is not None and hasattr(self._context, "aclose"):
                    self._awaited(self._context.aclose())
            finally:
                self._loop.close()


def context_of(task: Any, sibling: int, drawn: int) -> Any:
    """The context of the episode. There is no sandbox and no model here.

    Args:
        task: of the episode
        sibling: as in `EpisodeContext`
        drawn: seed of its random generator
    """
    try:
        kind = importlib.import_module("rlcore.episodes.context").EpisodeContext
    except ImportError:  # the stand-in
        import logging
        import random

        logger = logging.getLogger("rlcore.episode")
        return SimpleNamespace(task=task, sibling=sibling, random=random.Random(drawn), logger=logger)
    return kind(task, sibling=sibling, seed=drawn)


def tree_of(value: Any, images: list[bytes]) -> Any:
    """A value as plain data, in which bytes are indices of ``images``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: tree_of(getattr(value, one.name), images) for one in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        images.append(value)
        return str(len(images) - 1)
    if isinstance(value, dict):
        return {key: tree_of(item, images) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [tree_of(item, images) for item in value]
    return value.item() if hasattr(value, "dtype") and getattr(value, "shape", None) == () else value
