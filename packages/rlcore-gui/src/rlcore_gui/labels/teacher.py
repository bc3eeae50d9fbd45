"""`Teacher`: asks about the steps of episodes and writes the answers to the file of labels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rlcore.endpoints.answers import excerpt
from rlcore.endpoints.client import ChatEndpoints
from rlcore.endpoints.failures import EndpointFailure
from rlcore.errors import DataError, EngineError, RlcoreError
from rlcore.redaction import redact

from rlcore_gui.actions import Action, ActionTable
from rlcore_gui.labels.config import LabelTable
from rlcore_gui.labels.file import LabelFile, Record
from rlcore_gui.labels.pictures import sent_picture
from rlcore_gui.labels.prompt import (
    StepLabels,
    UnreadableSections,
    question,
    read_sections,
    request_messages,
    system_prompt,
)
from rlcore_gui.labels.work import Tally, key_of
from rlcore_gui.prepare.pseudo_labels import Key
from rlcore_gui.steps import GuiStep

MOST_FAILED = 24
"""Failed steps in a row after which nothing more is asked, if fewer are asked at a time."""
NO_IMAGE, NO_ACTION, SECTIONS = "no image", "unknown action", "invalid sections"
"""Kinds of failures beside those of endpoints."""


class _Failed(Exception):
    """A step without labels."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Teacher:
    """Labels episodes.

    Args:
        config: the teacher and its limits
        client: asks the teacher
        table: writes the actions
        file: receives the labels
        tally: counts what is done
        advance: is called after every step with ``tokens=``, the tokens of its answers
        screen: what the recorded person works on
    """

    def __init__(
        self,
        config: LabelTable,
        client: ChatEndpoints,
        table: ActionTable,
        file: LabelFile,
        tally: Tally,
        advance: Callable[..., None],
        *,
        screen: str,
    ) -> None:
        self._config, self._client, self._table, self._file = config, client, table, file
        self._tally, self._advance = tally, advance
        self._system = system_prompt(screen)
        self._taken: set[Key] = set()
        self._left = 0
        self._failed_in_row = 0
        self._most_failed = max(MOST_FAILED, 2 * config.concurrency)

    async def label(self, episodes: Iterable[Sequence[GuiStep]], *, limit: int) -> None:
        """Ask about at most ``limit`` steps.

        Raises:
            UserError: no question can be answered, or the file cannot be written.
            EngineError: many steps in a row failed.
        """
        self._left = limit
        waiting = iter(episodes)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._config.concurrency):
                    group.create_task(self._work(waiting))
        except ExceptionGroup as errors:
            raise _first(errors) from None

    async def _work(self, waiting: Iterator[Sequence[GuiStep]]) -> None:
        while self._left > 0 and (steps := next(waiting, None)) is not None:
            await self._episode(steps)

    async def _episode(self, steps: Sequence[GuiStep]) -> None:
        memory: str | None = None
        since: list[Action] = []
        for step in steps:
            key = key_of(step)
            if key not in self._file and key not in self._taken:
                if self._left <= 0:
                    return
                self._left -= 1
                self._taken.add(key)
                await self._step(step, memory, since)
            if (summary := self._file.summary(key)) is not None:
                memory, since = summary, []
            elif step.action.name:
                since.append(step.action)

    async def _step(self, step: GuiStep, memory: str | None, since: Sequence[Action]) -> None:
        before = self._tally.completion_tokens
        try:
            labels = await self._labels(step, memory, since)
        except _Failed as failed:
            detail = redact(excerpt(str(failed)))
            failure = Record(
                key=key_of(step), labels=None, failure=failed.kind, detail=detail, model=self._config.model
            )
            self._file.append(failure)
            self._tally.failures[failed.kind] += 1
            self._tally.detail = detail
            self._advance(tokens=self._tally.completion_tokens - before)
            self._check_row(failed.kind)
        else:
            self._file.append(Record(key=key_of(step), labels=labels, model=self._config.model))
            self._tally.labelled += 1
            self._failed_in_row = 0
            self._advance(tokens=self._tally.completion_tokens - before)

    async def _labels(self, step: GuiStep, memory: str | None, since: Sequence[Action]) -> StepLabels:
        """The labels of a step. Raises `_Failed`."""
        config = self._config
        image = await self._image(step)
        complaint: str | None = None
        for _ in range(config.attempts):
            text = question(step, self._table, memory=memory, since=since, complaint=complaint)
            try:
                answer = await self._client.ask(
                    request_messages(self._system, text, image),
                    max_tokens=config.max_tokens,
                    temperature=config.temperature,
                    top_p=config.top_p,
                )
            except EndpointFailure as failure:
                raise _Failed(failure.kind, str(failure)) from None
            self._tally.prompt_tokens += answer.prompt_tokens or 0
            self._tally.completion_tokens += answer.completion_tokens or 0
            if answer.truncated:
                complaint = f"it was longer than {config.max_tokens} tokens"
                continue
            try:
                return read_sections(answer.text)
            except UnreadableSections as error:
                complaint = str(error)
        raise _Failed(SECTIONS, complaint or "")

    async def _image(self, step: GuiStep) -> str:
        path, config = step.image, self._config
        if not step.action.name:
            raise _Failed(NO_ACTION, "the recorded action is unknown")
        if path is None:
            raise _Failed(NO_IMAGE, "the step has no screenshot")
        try:
            return await asyncio.to_thread(_sent, path, config.max_side, config.jpeg_quality)
        except DataError as error:
            raise _Failed(NO_IMAGE, f"{path}: {error.message}") from None

    def _check_row(self, kind: str) -> None:
        """Stop when the teacher answers no question any more, so that no time and money is spent in vain."""
        self._failed_in_row += kind not in {NO_IMAGE, NO_ACTION}
        if self._failed_in_row >= self._most_failed:
            text = f"the last {self._failed_in_row} steps could not be labelled, for example: {self._tally.detail}"
            fix = "add retry_failed=true to ask again about these steps" if kind == SECTIONS else ""
            raise EngineError(f"{text}; {fix}" if fix else text)


def _sent(path: Path, max_side: int, quality: int) -> str:
    return sent_picture(path, max_side=max_side, quality=quality).uri


def _first(errors: ExceptionGroup[Exception]) -> Exception:
    """The exception that ended the work."""
    found = errors.exceptions
    for error in found:
        if isinstance(error, RlcoreError):
            return error
    first = found[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
