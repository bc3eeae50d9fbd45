"""What there is to label, and what has been done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rlcore_gui.labels.file import Key, LabelFile
from rlcore_gui.steps import GuiStep

SAMPLES = 8


def key_of(step: GuiStep) -> Key:
    """How a step is named in a file of labels."""
    return step.episode_id, step.step_index


@dataclass(slots=True)
class Work:
    """The steps of a source."""

    total: int = 0
    """Different steps."""
    done: int = 0
    """Steps that are in the file of labels."""
    repeated: int = 0
    """Steps that occur again in the source."""
    steps: int = 0
    """Steps to ask about, within the limit."""
    without_image: int = 0
    """Steps among them that have no screenshot, so that no request is sent."""
    samples: list[GuiStep] = field(default_factory=list)
    """The first steps to ask about that have a screenshot."""


@dataclass(slots=True)
class Tally:
    """What a command has done so far."""

    labelled: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    """Failed steps by kind."""
    detail: str = ""
    """The last failure in words."""
    requests: int = 0
    retried: Counter[str] = field(default_factory=Counter)
    """Repeated requests by kind of failure."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def failed(self) -> int:
        """Failed steps."""
        return self.failures.total()


def count_work(episodes: Iterable[Sequence[GuiStep]], file: LabelFile, *, limit: int | None) -> Work:
    """Count the steps of all episodes."""
    work, seen = Work(), set[Key]()
    for steps in episodes:
        for step in steps:
            key = key_of(step)
            if key in seen:
                work.repeated += 1
                continue
            seen.add(key)
            work.total += 1
            if key in file:
                work.done += 1
            elif limit is None or work.steps < limit:
                work.steps += 1
                work.without_image += step.image is None
                if step.image is not None and len(work.samples) < SAMPLES:
                    work.samples.append(step)
    return work
