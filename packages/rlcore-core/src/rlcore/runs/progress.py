"""How far a phase of a run is, such as a rollout or an update, while it lasts.

A phase counts with a `Meter`, and a `ProgressDisplay` shows it. Any function that takes a `Progress` is a display: pass
one to `RunSession` to show the progress in another place.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rlcore.console.terminal import in_notebook, overwrite
from rlcore.console.wording import counted

SHOWN_EVERY_S = 0.1
"""Least time between two calls of a display."""
LINE_EVERY_S = 30.0
"""Time between two lines where no line can be replaced; a shorter phase prints none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a phase."""

    phase: str
    """``rollout``, ``evaluation``, ``update``, ``warm-up``, …"""
    done: int
    total: int
    unit: str
    """What ``done`` and ``total`` count: ``trajectory``, ``token``, ``step``."""
    tokens: int
    """Tokens that were sampled or trained so far."""
    elapsed_s: float
    ended: bool = False
    """True for the last state of the phase, which may be incomplete."""

    @property
    def tokens_per_second(self) -> float:
        """The mean rate since the phase began."""
        return self.tokens / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        """The time that the rest takes at the mean rate; None before anything is done."""
        return self.elapsed_s * (self.total - self.done) / self.done if self.done else None

    def __str__(self) -> str:
        text = f"{self.phase}  {self.done:,} of {counted(self.total, self.unit)}"
        if self.tokens:
            text += f", {self.tokens_per_second:,.0f} tokens/s"
        if self.remaining_s is not None:
            text += f", {_duration(self.remaining_s)} left"
        elif self.elapsed_s >= 1:
            text += f", {_duration(self.elapsed_s)} so far"
        return text


ProgressDisplay = Callable[[Progress], None]


class Meter:
    """Counts a phase and shows it, as a context manager. Counting costs about a microsecond.

    Attributes:
        done: what was counted so far
    """

    def __init__(self, phase: str, total: int, unit: str, show: ProgressDisplay) -> None:
        self._phase, self._total, self._unit, self._show = phase, total, unit, show
        self.done = self._tokens = 0
        self._started = self._shown = time.monotonic()

    def advance(self, done: int = 1, *, tokens: int = 0) -> None:
        """Count what was done, and show it if the last time is long enough ago."""
        self.done += done
        self._tokens += tokens
        self.refresh()

    def restart(self) -> None:
        """Measure times from now on: what took time before was not what is counted."""
        self._started = time.monotonic()

    def refresh(self) -> None:
        """Show the time that has passed since the last call of `advance`."""
        now = time.monotonic()
        if now - self._shown >= SHOWN_EVERY_S:
            self._shown = now
            self._show(self._state(now))

    def _state(self, now: float, *, ended: bool = False) -> Progress:
        return Progress(
            phase=self._phase,
            done=self.done,
            total=self._total,
            unit=self._unit,
            tokens=self._tokens,
            elapsed_s=now - self._started,
            ended=ended,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._show(self._state(time.monotonic(), ended=True))


class Report(Protocol):
    """Shows what a part of a run does. `rlcore.session.session.RunSession` is one."""

    def say(self, *lines: str) -> None:
        """Print lines, and write them to the log."""
        ...

    def progress(self, phase: str, total: int, unit: str) -> Meter:
        """Return a meter of a phase."""
        ...


def silent(progress: Progress) -> None:
    """Show nothing."""


class PrintedProgress:
    """A bar on a terminal, a line that is replaced in a notebook, and elsewhere a line now and then.

    Args:
        say: prints a line
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._next_s = say, LINE_EVERY_S
        self._replaces = in_notebook() or sys.stderr.isatty()

    def __call__(self, progress: Progress) -> None:
        """Show a state."""
        if progress.ended:
            self._next_s = LINE_EVERY_S
            if self._replaces:
                overwrite()
        elif self._replaces:
            overwrite(str(progress), fraction=progress.done / max(1, progress.total))
        elif progress.elapsed_s >= self._next_s:
            self._next_s = progress.elapsed_s + LINE_EVERY_S
            self._say(f"progress  {progress}")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
