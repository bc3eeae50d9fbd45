"""What a command would ask, without asking."""

from __future__ import annotations

from collections.abc import Mapping

from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import DataError

from rlcore_gui.actions import ActionTable
from rlcore_gui.labels.config import LabelTable
from rlcore_gui.labels.pictures import Picture, sent_picture
from rlcore_gui.labels.prompt import question, system_prompt
from rlcore_gui.labels.work import Work
from rlcore_gui.steps import GuiStep


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
