"""The persistent state of a session: runs cells one after another, and returns what they showed."""

from __future__ import annotations

import ast
import builtins
import io
import linecache
import mmap
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from types import CodeType, FrameType, ModuleType, SimpleNamespace, TracebackType
from typing import Any

from rlcore_sandbox.inside.figures import Shown, decoded
from rlcore_sandbox.inside.output import cut

NAMES = {
    "np": "numpy",
    "plt": "matplotlib.pyplot",
    "matplotlib": "matplotlib",
    "Image": "PIL.Image",
    "io": "io",
    "base64": "base64",
    "math": "math",
}
"""Modules that are bound in each session, if they are installed."""
_identity, _frames = threading.get_ident, sys._current_frames
_compile, _exec, _eval, _repr, _mmap = compile, exec, eval, repr, mmap.mmap
RESERVE = 4 * 2**20
"""Address space that a cell cannot use, in bytes. It lets a session reply and read when code has used all the rest."""

CELL = "<cell "
FIRST_FRAMES, LAST_FRAMES = 3, 7
"""Frames that are kept of a deep recursion."""
LONGEST_LINE = 160
_lines: dict[str, list[str]] = {}
_walk, _format_last = traceback.walk_tb, traceback.format_exception_only


class Stream(io.TextIOWrapper):
    """``sys.stdout`` and ``sys.stderr``. Drops what threads of earlier cells print."""

    def __init__(self, number: int, abandoned: set[int]) -> None:
        raw = os.fdopen(os.dup(number), "wb")
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self._abandoned = abandoned

    def write(self, text: str) -> int:
        """Write, unless a thread of an earlier cell calls it."""
        return len(text) if self._abandoned and _identity() in self._abandoned else super().write(text)


class Cells:
    """Runs cells in one namespace.

    Args:
        images: the initial images, encoded
        limits: with the fields of `rlcore.types.SandboxLimits`

    Raises:
        ValueError: an image cannot be read.
    """

    def __init__(self, images: Sequence[bytes], limits: SimpleNamespace) -> None:
        self._limits = limits
        self._module = ModuleType("__main__")
        self._names = self._module.__dict__
        self._names.update({name: sys.modules[module] for name, module in NAMES.items() if module in sys.modules})
        self._names["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        for number, image in enumerate(images):
            try:
                self._names[f"image_clue_{number}"] = decoded(image)
            except Exception as error:  # damaged files raise every type
                raise ValueError(f"image {number} of {len(images)}: {type(error).__name__}: {error}") from None
        self._cell = self._first = 0
        self._abandoned: set[int] = set()
        self._streams = [Stream(1, self._abandoned), Stream(2, self._abandoned)]
        self._shown = Shown(self._bind, most=limits.images, pixels=limits.image_pixels)

    def run(self, code: str, first: int) -> tuple[dict[str, Any], list[bytes]]:
        """Run a cell.

        Args:
            code: Python source
            first: number of the first image that it shows, for the name of its variable

        Returns:
            The fields of the reply, and the shown images as PNG.
        """
        self._prepare(first)
        value = error = ""
        try:
            value = self._execute(code)
        except BaseException as raised:
            error = self._explained(raised)
        try:
            self._shown.show_open_figures()
        except BaseException as raised:
            error = error or self._explained(raised)
        self._finish()
        shown = self._shown
        reply = {"ok": not error, "value": value, "error": error, "omitted": shown.omitted}
        return reply, shown.encoded

    def _prepare(self, first: int) -> None:
        """Restore what earlier cells may have replaced or left behind."""
        self._cell, self._first = self._cell + 1, first
        self._abandon_threads()
        for index, stream in enumerate(self._streams):
            if stream.closed:
                self._streams[index] = Stream(index + 1, self._abandoned)
        sys.stdout, sys.stderr = self._streams
        sys.__stdout__, sys.__stderr__ = self._streams  # type: ignore[misc]
        sys.modules["__main__"] = self._module
        self._shown.begin()

    def _execute(self, code: str) -> str:
        """Run the code, and return its last expression as a text."""
        name = f"{CELL}{self._cell}>"
        _remember(name, code)
        reserve = _reserved()
        try:
            body, last = _compiled(code, name)
            if body is not None:
                _exec(body, self._names)
            if last is None:
                return ""
            value = _eval(last, self._names)
            return "" if value is None or self._shown.add(value) else cut(_repr(value), self._limits.output_characters)
        finally:
            if reserve is not None:
                reserve.close()

    def _explained(self, error: BaseException) -> str:
        text = _short_traceback(error, self._limits.output_characters)
        error.__traceback__ = None  # its frames hold the variables of the cell
        return text

    def _finish(self) -> None:
        """Stop what would disturb the session between cells, and write what is buffered."""
        sys.settrace(None)
        sys.setprofile(None)
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
        if sys.getrecursionlimit() < 1000:
            sys.setrecursionlimit(1000)
        for note in self._shown.notes:
            _quietly(self._streams[1].write, f"{note}\n")
        for stream in {sys.stdout, sys.stderr, *self._streams}:
            _quietly(stream.flush)
        self._abandon_threads()

    def _abandon_threads(self) -> None:
        """Drop what other threads print from now on."""
        others = _frames()
        self._abandoned.clear()
        if len(others) > 1:
            self._abandoned.update(others.keys() - {_identity()})

    def _bind(self, index: int, image: Any) -> None:
        self._names[f"image_clue_{self._first + index}"] = image


def _compiled(code: str, name: str) -> tuple[CodeType | None, CodeType | None]:
    """The statements of a cell, and its last expression unless a semicolon ends it."""
    tree = _compile(code, name, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    last = None
    if tree.body and isinstance(end := tree.body[-1], ast.Expr) and not _semicolon_after(end, code):
        tree.body.pop()
        last = _compile(ast.Expression(end.value), name, "eval", dont_inherit=True)
    body = _compile(tree, name, "exec", dont_inherit=True) if tree.body else None
    return body, last


def _semicolon_after(statement: ast.stmt, code: str) -> bool:
    """Whether a semicolon follows the last statement. A comment is no statement."""
    assert statement.end_lineno is not None
    lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")[statement.end_lineno - 1 :]
    rest = "\n".join(lines).encode("utf-8")[statement.end_col_offset :]
    return rest.lstrip(b" \t\f\\\n").startswith(b";")


def _quietly(function: Any, *arguments: object) -> None:
    try:
        function(*arguments)
    except BaseException:
        return


def _reserved() -> mmap.mmap | None:
    """Address space to be freed after a cell. None if earlier cells have left little: the next one needs it."""
    try:
        _mmap(-1, 3 * RESERVE, flags=mmap.MAP_PRIVATE).close()
        return _mmap(-1, RESERVE, flags=mmap.MAP_PRIVATE)
    except OSError:
        return None


def _remember(name: str, code: str) -> None:
    """Keep the source of a cell, for tracebacks and `inspect`."""
    lines = code.splitlines()
    _lines[name] = lines
    if type(linecache.cache) is dict:  # code can replace it
        linecache.cache[name] = (len(code), None, [f"{line}\n" for line in lines], name)


def _short_traceback(error: BaseException, characters: int) -> str:
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
        if FIRST_FRAMES <= index < len(shown) - LAST_FRAMES:
            if index == FIRST_FRAMES:
                lines.append(f"  ... {len(shown) - FIRST_FRAMES - LAST_FRAMES} frames ...")
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
