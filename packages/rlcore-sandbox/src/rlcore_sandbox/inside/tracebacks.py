"""Short tracebacks: the frames of the cells, with their lines, and the innermost frame of a library."""

from __future__ import annotations

import linecache
import traceback
from types import FrameType, TracebackType

from rlcore_sandbox.inside.texts import cut

CELL = "<cell "
FIRST, LAST = 3, 7
"""Frames that are kept of a deep recursion."""
LONGEST_LINE = 160
_lines: dict[str, list[str]] = {}
_walk, _format_last = traceback.walk_tb, traceback.format_exception_only


def remember(name: str, code: str) -> None:
    """Keep the source of a cell, for tracebacks and `inspect`."""
    lines = code.splitlines()
    _lines[name] = lines
    if type(linecache.cache) is dict:  # code can replace it
        linecache.cache[name] = (len(code), None, [f"{line}\n" for line in lines], name)


def short_traceback(error: BaseException, characters: int) -> str:
    """The traceback of an exception that code of a cell raised. Also for one whose message cannot be read."""
    try:
        frames = list(_walk(_first_of_a_cell(error.__traceback__)))
    except BaseException:
        frames = []
    lines = _frame_lines(frames)
    head = ["Traceback (most recent call last):", *lines] if lines else []
    return cut("\n".join([*head, _last_line(error)]), characters)


def _first_of_a_cell(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and not _is_cell(trace.tb_frame):
        trace = trace.tb_next
    return trace


def _is_cell(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(CELL)


def _frame_lines(frames: list[tuple[FrameType, int]]) -> list[str]:
    shown = [(frame, line) for frame, line in frames if _is_cell(frame)]
    if frames and not _is_cell(frames[-1][0]):
        shown.append(frames[-1])
    lines = []
    for index, (frame, line) in enumerate(shown):
        if FIRST <= index < len(shown) - LAST:
            if index == FIRST:
                lines.append(f"  ... {len(shown) - FIRST - LAST} frames ...")
            continue
        name = frame.f_code.co_filename
        short = name if _is_cell(frame) else "/".join(name.split("/")[-2:])
        lines.append(f'  File "{short}", line {line}, in {frame.f_code.co_name}')
        if _is_cell(frame) and name in _lines and line <= len(_lines[name]):
            lines.append(f"    {_lines[name][line - 1].strip()[:LONGEST_LINE]}")
    return lines


def _last_line(error: BaseException) -> str:
    try:
        text = "".join(_format_last(type(error), error)).rstrip("\n")
    except BaseException:
        return f"{type(error).__name__} (its message cannot be read)"
    if isinstance(error, SystemExit):
        text += "\nThe session goes on: code cannot end it."
    return text
