"""``rlcore data label`` of GUI datasets: ask a teacher about every step of recorded episodes.

Episodes are labelled at the same time. The steps of an episode follow each other, because the question about a step
contains the summary that the teacher wrote for the step before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rlcore import event_loop
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.endpoints.failures import TRANSIENT
from rlcore.errors import EngineError
from rlcore.runs.progress import Meter, PrintedProgress

from rlcore_gui.actions import ActionTable
from rlcore_gui.labels.config import LabelTable
from rlcore_gui.labels.file import LabelFile, opened
from rlcore_gui.labels.work import Tally, Work, count_work, estimate
from rlcore_gui.steps import GuiStep

Episodes = Callable[[], Iterable[Sequence[GuiStep]]]
"""Reads the episodes from the source, each with all its steps in order. Called twice: to count, and to ask."""


def label(config: LabelTable, episodes: Episodes, table: ActionTable, *, screen: str) -> Mapping[str, object]:
    """Label the steps of all episodes, and return what to print.

    Args:
        config: the teacher and the file of labels
        episodes: reads the steps; a step that occurs twice is labelled once
        table: writes the actions
        screen: what the recorded person works on, such as ``an Android phone``

    Raises:
        UserError: nothing can be labelled, such as with a wrong key. The labels so far are in the file.
        EngineError: many steps in a row could not be labelled, or none at all.
    """
    path = Path(config.out).expanduser()
    again = None if config.retry_failed else TRANSIENT
    with opened(path, again=again, read_only=config.dry_run) as file:
        work = count_work(episodes(), file, limit=config.limit)
        if config.dry_run:
            return estimate(config, work, table, screen=screen)
        tally = Tally()
        started = time.monotonic()
        try:
            if work.steps:
                _ask_all(config, episodes, table, file, work, tally, screen=screen)
        except BaseException:
            left = counted(work.steps - tally.labelled - tally.failed, "step")
            say(f"{tally.labelled:,} steps are labelled in {path}, {left} left: the same command continues", err=True)
            raise
        summary = _summary(work, tally, file, seconds=time.monotonic() - started)
    if tally.failed and not tally.labelled:
        found = f"{', '.join(f'{count} times {kind}' for kind, count in tally.failures.most_common())}; {tally.detail}"
        raise EngineError(f"the teacher labelled none of {counted(tally.failed, 'step')}: {found}")
    return summary


def _ask_all(
    config: LabelTable,
    episodes: Episodes,
    table: ActionTable,
    file: LabelFile,
    work: Work,
    tally: Tally,
    *,
    screen: str,
) -> None:
    from rlcore.endpoints.client import ChatEndpoints

    from rlcore_gui.labels.teacher import Teacher

    async def ask() -> None:
        async with ChatEndpoints(config) as client:
            teacher = Teacher(config, client, table, file, tally, meter.advance, screen=screen)
            try:
                await teacher.label(episodes(), limit=work.steps)
            finally:
                tally.requests, tally.retried = client.requests, client.retried

    with Meter("labels", work.steps, "step", PrintedProgress(lambda line: say(line, err=True))) as meter:
        event_loop.run(ask())


def _summary(work: Work, tally: Tally, file: LabelFile, *, seconds: float) -> Mapping[str, object]:
    teachers = ", ".join(f"{model} ({count:,})" for model, count in file.models().most_common())
    return {
        "steps": work.total,
        "labelled before": work.done,
        "labelled": tally.labelled,
        **{f"failed: {kind}": count for kind, count in tally.failures.most_common()},
        "left": work.total - work.done - tally.labelled - tally.failed,
        "repeated steps of the source": work.repeated,
        "repeated lines removed": file.duplicates,
        "requests": tally.requests,
        **{f"retries: {kind}": count for kind, count in tally.retried.most_common()},
        "prompt tokens": tally.prompt_tokens,
        "completion tokens": tally.completion_tokens,
        "seconds": round(seconds, 1),
        "teachers": teachers or "none",
        "written": str(file.path),
    }
