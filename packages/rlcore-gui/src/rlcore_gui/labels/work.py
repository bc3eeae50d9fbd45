"""What there is to label, what has been done, and what a command would ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import DataError

from rlcore_gui.actions import ActionTable
from rlcore_gui.labels.config import LabelTable
from rlcore_gui.labels.file import LabelFile
from rlcore_gui.labels.pictures import Picture, sent_picture
from rlcore_gui.labels.prompt import question, system_prompt
from rlcore_gui.prepare.pseudo_labels import Key
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


def estimate(config: LabelTable, work: Work, table: ActionTable, *, screen: str) -> Mapping[str, object]:
    """Print the first request to stderr, and return the expected number of requests and images."""
    pictures = [(step, picture) for step in work.samples if (picture := _picture(step, config)) is not None]
    if pictures:
        _print_request(*pictures[0], config, table, screen=screen)
    requests = work.steps - work.without_image
    mean_bytes = sum(len(picture.data) for _, picture in pictures) / max(1, len(pictures))
    found: dict[str, object] = {
        "steps": work.total,
        "labelled before": work.done,
        "repeated steps of the source": work.repeated,
        "steps to ask about": work.steps,
        "steps without a screenshot": work.without_image,
        "requests": requests,
        "requests at most": requests * config.attempts * (1 + config.max_retries),
        "images": requests,
        "megabytes of images, about": round(requests * mean_bytes / 1e6, 1),
    }
    if config.requests_per_minute:
        found["minutes at least"] = round(requests / config.requests_per_minute, 1)
    return {**found, "written": "nothing: this is a dry run"}


def _picture(step: GuiStep, config: LabelTable) -> Picture | None:
    try:
        return sent_picture(step.image, max_side=config.max_side, quality=config.jpeg_quality) if step.image else None
    except DataError:
        return None


def _print_request(step: GuiStep, picture: Picture, config: LabelTable, table: ActionTable, *, screen: str) -> None:
    options = {"temperature": config.temperature, "top_p": config.top_p, "max_tokens": config.max_tokens}
    given = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
    width, height = picture.size
    text = question(step, table, memory=None, since=())
    say(
        f"POST {config.base_url[0]}/chat/completions",
        f"model {config.model}, {given}",
        "",
        "system:",
        *(f"  {line}" for line in system_prompt(screen).split("\n")),
        "user:",
        f"  [{step.image}: {width} x {height} pixels, {counted(len(picture.data), 'byte')} as JPEG]",
        *(f"  {line}" for line in text.split("\n")),
        "",
        err=True,
    )
