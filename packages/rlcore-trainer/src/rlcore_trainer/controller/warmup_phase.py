"""The warm-up as a phase of a run, which can be interrupted and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from rlcore.console.wording import counted
from rlcore.runs.progress import Meter

from rlcore_trainer.controller.report import Report
from rlcore_trainer.controller.session import TrainingSession

SAVE_EVERY_S = 60.0
"""Seconds between checkpoints, if there are any: a checkpoint takes longer than several updates of a small model."""


class WarmUp(Protocol):
    """Trains on demonstrations."""

    def __call__(self, meter: Meter, *, done: int, finished: Callable[[int], None]) -> None:
        """Make the updates that remain, until a stop.

        Args:
            meter: counts the updates
            done: number of updates that an interrupted run made before
            finished: called after each update with the number of updates so far
        """
        ...


class WarmUpPhase:
    """Trains on demonstrations before the first step of reinforcement learning.

    Args:
        warm_up: makes the updates
        steps: number of updates
        session: stores the progress
        report: shows the progress
        start_reinforcement: called at the end, before the first step
    """

    def __init__(
        self,
        warm_up: WarmUp,
        steps: int,
        *,
        session: TrainingSession,
        report: Report,
        start_reinforcement: Callable[[], None],
    ) -> None:
        self._warm_up, self._steps, self._session, self._report = warm_up, steps, session, report
        self._start_reinforcement = start_reinforcement

    def complete(self) -> bool:
        """Make the remaining updates. Return False after a stop, which saves the updates so far."""
        session, saved = self._session, time.monotonic()
        done = session.progress.warmup or 0
        session.advance(0, warmup=done)
        if done:
            self._report.say(f"warm-up   continues after {done} of {counted(self._steps, 'update')}")

        def finished(updates: int) -> None:
            nonlocal saved
            session.policy.version = updates
            session.advance(0, warmup=updates)
            if session.saves and time.monotonic() - saved > SAVE_EVERY_S:
                session.save()
                saved = time.monotonic()

        with self._report.progress("warm-up", self._steps - done, "step") as meter:
            self._warm_up(meter, done=done, finished=finished)
        session.require_finite_policy("the end of the warm-up")
        if session.stopping():
            session.save()
            return False
        session.advance(0, warmup=None)
        self._start_reinforcement()
        return True
