"""Stored rollouts for ``rlcore data show``: selected by their index, and read by their offsets."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby, islice
from pathlib import Path

from rlcore.cli.data.rows import (
    Shown,
    ShownImages,
    call_line,
    conversation,
    ending,
    fields_of,
    group_lines,
    reward_text,
)
from rlcore.cli.data.token_table import token_lines
from rlcore.cli.output import print_json, printable
from rlcore.console.terminal import say
from rlcore.console.wording import counted
from rlcore.errors import DataError
from rlcore.rollouts.conditions import Where, column_of, names_of
from rlcore.rollouts.decoding import Decoder
from rlcore.rollouts.index import Row
from rlcore.rollouts.reading import Found, Rollouts, is_unfinished
from rlcore.rollouts.records import blobs_of, purpose_and_step
from rlcore.runs.tokenizer import decoder_of
from rlcore.types import RewardResult, to_json

NARROWEST = 36
"""Width of a column of siblings in characters; more siblings follow below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which trajectories are shown, and how."""

    count: int
    purpose: str | None = None
    steps: str | None = None
    where: Where | None = None
    task: str | None = None
    text: str | None = None
    group: int | None = None
    order: str | None = None
    """``best`` or ``worst``."""
    view: str = "full"
    """``full``, ``list``, ``siblings``, ``times`` or ``json``."""
    tokens: str | None = None
    """The column of the token table."""

    @property
    def asks(self) -> bool:
        """Whether trajectories are selected, instead of groups in their order."""
        return any((self.where, self.task, self.text, self.group is not None, self.order, self.view != "full"))

    @property
    def selects(self) -> bool:
        """Whether anything is asked that only stored rollouts of a run have."""
        return self.asks or bool(self.tokens or self.steps or self.purpose)


def is_of_run(path: Path) -> bool:
    """Whether a path is a file of rollouts of a run."""
    return path.is_file() and path.parent.name == "rollouts" and (path.parent.parent / "config.toml").is_file()


def show_rollouts(source: Path, selection: Selection, images: Path | None) -> None:
    """Print stored rollouts of a run or of a file.

    Args:
        source: the run directory, or a file
        selection: what to show
        images: the folder to write images to; None names their files in the run

    Raises:
        UserError: the selection is no condition, or selects from columns that do not exist.
        DataError: a file cannot be read.
    """
    rollouts = Rollouts(source, decode_bytes=str.encode)  # images are read where they are shown
    files = rollouts.files(selection.purpose, selection.steps or ("newest" if source.is_dir() else "all"))
    found = list(rollouts.select(files))
    if selection.view != "json":
        for path in files[:1] if len(files) == 1 else []:
            groups = len({(one.row["step"], one.row["group"]) for one in found})
            state = f", in progress: {counted(groups, 'group')} so far" if is_unfinished(path) else ""
            say(f"{path}{state}", "")
    if selection.where is not None:
        selection.where.check(set().union(*(names_of(one.row) for one in found)))
    chosen = _ordered([one for one in found if _matches(one, selection)], selection.order)
    if selection.tokens is not None:
        say(*token_lines(rollouts, files, chosen, selection.tokens, selection.count, selection.order == "worst"))
    elif selection.view == "json":
        for one in islice(chosen, selection.count):
            print_json(one.row)
    elif not chosen:
        say("no rows")
    elif selection.view == "list":
        say(*_table(chosen, selection.count))
    elif selection.view == "times":
        say(*_times(rollouts, files, chosen, selection.count))
    else:
        _print(chosen, selection, ShownImages(images, None), files)


def _matches(one: Found, selection: Selection) -> bool:
    row = one.row
    if selection.group is not None and row["group"] != selection.group:
        return False
    if selection.task is not None and selection.task not in (row["task"], f"{row['environment']}/{row['task']}"):
        return False
    if selection.where is not None and not selection.where(row):
        return False
    if selection.text is None:
        return True
    wanted = selection.text.casefold()
    messages = one.trajectory.messages
    texts = chain(*([each.text, *map(call_line, map(to_json, each.tool_calls))] for each in messages))
    return any(wanted in text.casefold() for text in texts)


def _ordered(found: list[Found], order: str | None) -> list[Found]:
    """The trajectories by reward; those that are not scored are the last of the best, and are no worst ones."""
    if order is None:
        return found
    scored = [one for one in found if one.row["reward"] is not None]
    left = [one for one in found if one.row["reward"] is None] if order == "best" else []
    return sorted(scored, key=lambda one: one.row["reward"], reverse=order == "best") + left


def _print(chosen: Sequence[Found], selection: Selection, pictures: ShownImages, files: Sequence[Path]) -> None:
    """Print groups or trajectories in full."""
    blobs = blobs_of(files[0])
    decoder = cache(lambda: decoder_of(files[0]))  # few rows need a tokenizer, which takes a while to load

    def put(lines: Iterator[str | Shown]) -> None:
        for line in lines:
            if isinstance(line, Shown):
                pictures.show(line.sha256, blobs.get, stored=blobs.path(line.sha256))
            else:
                say(line)

    if selection.view == "siblings":
        groups = [next(rows) for _, rows in groupby(chosen, key=lambda one: (one.row["step"], one.row["group"]))]
        for number, one in enumerate(groups[: selection.count]):
            say(*([] if number == 0 else [""]), *_beside(one, decoder))
    elif selection.asks:
        say(f"{len(chosen):,} matching trajectories" if len(chosen) != 1 else "1 matching trajectory")
        for one in chosen[: selection.count]:
            say("")
            put(chain(_header(one), conversation(one.trajectory, decoder)))
    else:
        groups = [next(rows) for _, rows in groupby(chosen, key=lambda one: (one.row["step"], one.row["group"]))]
        for number, one in enumerate(groups[: selection.count], start=1):
            say(*([] if number == 1 else [""]), f"row {number}")
            fate = fate_of(one.row)
            put(group_lines(one.read(), f"group {one.row['group']} {fate}" if fate else "", decoder))


def _header(one: Found) -> Iterator[str]:
    row, trajectory = one.row, one.trajectory
    place = f"{row['purpose']} step {row['step']}, group {row['group']}, sibling {row['sibling']}"
    yield f"{place}: {ending(trajectory)}"
    name = f"{row['environment']}/{row['task']}" if row["environment"] else row["task"]
    fate = fate_of(row)
    yield f"  task {printable(name)}{f', group {fate}' if fate else ''}"
    yield from fields_of(one.read().task)
    if (sampling := row.get("sampling")) is not None:
        first, last = row.get("versions", (0, 0))
        version = f"policy version {first}{'' if first == last else f' to {last}'}"
        yield f"  sampled by {version}, {', '.join(f'{key} {value}' for key, value in sampling.items())}"
    for id, result in trajectory.rewards.items():
        yield from _reward_lines(id, result)
    counts = {name: value for name, value in trajectory.metrics.items() if value}
    if counts:
        yield f"  metrics {', '.join(f'{printable(name, 60)} {value:g}' for name, value in counts.items())}"


def _reward_lines(id: str, result: RewardResult) -> Iterator[str]:
    components = ", ".join(f"{printable(name, 60)} {value:g}" for name, value in result.components.items())
    error = f": {printable(result.error)}" if result.error is not None else ""
    yield f"  reward {printable(id)} {reward_text(result.value)}{f' ({components})' if components else ''}{error}"
    if result.text:
        yield f"    said: {printable(result.text)}"


def fate_of(row: Row) -> str:
    """What became of a group, as text; empty if that is not known."""
    fate, why = row.get("fate"), str(row.get("why", "")).replace("_", " ")
    if fate == "kept":
        behind = row.get("staleness", 0)
        late = f", {counted(behind, 'update')} behind" if behind else ""
        step = f"step {row.get('trained_step', row['step'])}{late}"
        return f"in the batch of {step}; all rewards are equal" if row.get("spread") == 0 else f"trained in {step}"
    return {"dropped": f"dropped: {why}", "carried": "carried over to a later step"}.get(str(fate), "")


def _table(chosen: Sequence[Found], count: int) -> Iterator[str]:
    """A line for each trajectory."""
    names = (
        "step",
        "group",
        "sibling",
        "reward",
        "stop",
        "tokens",
        "turns",
        "fate",
        "staleness",
        "purpose",
        "task",
        "failure",
    )
    rows = [[_cell(column_of(one.row, name)) for name in names] for one in chosen[:count]]
    widths = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    for cells in (names, *rows):
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
    if len(chosen) > count:
        yield f"{count} of {len(chosen):,}; -n shows more"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else printable(str(value), 120)


def _beside(one: Found, decoder: Decoder) -> Iterator[str]:
    """The siblings of a group beside each other, without the messages that all of them begin with."""
    group = one.read()
    place = f"{one.row['purpose']} step {one.row['step']}, group {one.row['group']}, task {printable(group.task.id)}"
    yield f"{place} {fate_of(one.row)}".rstrip()
    yield from fields_of(group.task)
    talks = [[_line(line) for line in conversation(trajectory, decoder)] for trajectory in group.trajectories]
    shared = 0
    while all(len(talk) > shared for talk in talks) and len({talk[shared] for talk in talks}) == 1:
        shared += 1
    yield from talks[0][:shared] if talks else ()
    heads = [f"sibling {each.sibling}: {ending(each)}" for each in group.trajectories]
    total = shutil.get_terminal_size((120, 24)).columns
    per_row = max(1, min(len(talks), total // NARROWEST))
    width = total // per_row - 3
    for start in range(0, len(talks), per_row):
        cells = [
            [part for line in (head, *talk[shared:]) for part in textwrap.wrap(line.strip(), width) or [""]]
            for head, talk in zip(heads[start : start + per_row], talks[start : start + per_row], strict=True)
        ]
        yield ""
        for number in range(max(map(len, cells))):
            parts = (cell[number] if number < len(cell) else "" for cell in cells)
            yield " | ".join(f"{part:<{width}}" for part in parts).rstrip()


def _line(line: str | Shown) -> str:
    return f"[image {line.sha256[:12]}]" if isinstance(line, Shown) else line


def _times(rollouts: Rollouts, files: Sequence[Path], chosen: Sequence[Found], count: int) -> Iterator[str]:
    """The times by kind, and the longest ones."""
    wanted = {tuple(one.row[name] for name in ("purpose", "step", "group", "sibling")) for one in chosen}
    found = [
        (step, row)
        for path in files
        for purpose, step in [purpose_and_step(path)]
        for row in rollouts.times(path)
        if (purpose, step, row["group"], row["sibling"]) in wanted
    ]
    if not found:
        raise DataError("no times of these trajectories are stored", fix="times are stored by runs of this version")
    kinds: dict[tuple[str, str], list[float]] = {}
    for _, row in found:
        kinds.setdefault((row["kind"], row["name"]), []).append(row["seconds"])
    yield f"{'part':<40}{'count':>8}{'mean s':>12}{'longest s':>12}{'all s':>12}"
    for (kind, name), times in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        part = printable(f"{kind} {name}".strip(), 38)
        yield f"{part:<40}{len(times):>8}{sum(times) / len(times):>12.4f}{max(times):>12.4f}{sum(times):>12.2f}"
    yield ""
    yield "longest"
    for step, row in sorted(found, key=lambda item: -item[1]["seconds"])[:count]:
        place = f"step {step}, group {row['group']}, sibling {row['sibling']}"
        yield f"  {row['seconds']:10.4f} s  {printable(row['kind'] + ' ' + row['name']).strip()}  {place}"


__all__ = ["Selection", "is_of_run", "show_rollouts"]
