"""The only way to the terminal: every command prints through this module, which escapes what it prints."""

from __future__ import annotations

import errno
import json
import logging
import os
import select
import shutil
import sys
import traceback
from typing import TextIO

from rlcore.console.escaping import escaped_json, printable
from rlcore.plain_json import plain, whole
from rlcore.redaction import redact

BAR_WIDTH = 24


def say(*lines: str, err: bool = False, stream: TextIO | None = None) -> None:
    """Print lines to stdout, to stderr (``err``) or to another stream. A line break inside a line is escaped."""
    _progress_line.id = None  # the next progress line is below these lines
    _write(stream or (sys.stderr if err else sys.stdout), "".join(f"{printable(line)}\n" for line in lines))


def say_json(value: object, *, indent: int | None = None, stream: TextIO | None = None) -> None:
    """Print plain data as JSON to stdout or another stream. See `rlcore.plain_json.plain`."""
    _write(stream or sys.stdout, json_text(value, indent=indent) + "\n")


def json_text(value: object, *, indent: int | None = None) -> str:
    """Plain data as JSON without secrets and without control characters."""
    data = plain(value, lambda text: whole(redact(text)))
    return escaped_json(json.dumps(data, indent=indent, ensure_ascii=False, default=str))


def overwrite(text: str = "", *, fraction: float | None = None) -> None:
    """Replace the progress line by a text or by nothing: in a notebook, else on stderr, which must be a terminal.

    Args:
        text: cut to the width of the terminal
        fraction: on a terminal, draw a bar with this share before the text
    """
    if in_notebook():
        _progress_line.show_in_notebook(printable(text))
        return
    bar = _bar(fraction) if fraction is not None else ""
    room = shutil.get_terminal_size().columns - (BAR_WIDTH + 2 if bar else 1)
    _progress_line.clear()
    _write(sys.stderr, f"{bar}{printable(text)[: max(0, room)]}")
    _progress_line.drawn = bool(text)


def _bar(fraction: float) -> str:
    from rich.console import Console
    from rich.progress_bar import ProgressBar

    console = Console(file=sys.stderr)
    with console.capture() as drawn:
        console.print(ProgressBar(total=1.0, completed=fraction, width=BAR_WIDTH), end=" ")
    return drawn.get()


def in_notebook() -> bool:
    """Whether the output of this process is shown by Jupyter, which cannot move a cursor."""
    shell = sys.modules.get("ipykernel.zmqshell")
    return shell is not None and bool(shell.ZMQInteractiveShell.initialized())


class _ProgressLine:
    """The last line of a terminal, or a part of a notebook's output that is replaced in place, if it shows progress."""

    drawn = False
    """Whether the last line of the terminal shows progress."""
    id: str | None = None
    """What Jupyter calls the part; None if there is none yet."""

    def clear(self) -> None:
        if self.drawn:
            self.drawn = False
            _write(sys.stderr, "\r\x1b[K")

    def show_in_notebook(self, text: str) -> None:
        if self.id is None and not text:
            return
        import uuid

        from IPython.display import display

        new, self.id = self.id is None, self.id or uuid.uuid4().hex
        display({"text/plain": text}, raw=True, display_id=self.id, update=not new)


_progress_line = _ProgressLine()


class LogHandler(logging.Handler):
    """Prints log records to stderr, each on one line, followed by an indented traceback if it has one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        try:
            text = record.getMessage()
        except Exception as mistake:  # the arguments do not fit the message
            text = f"{record.msg} ({type(mistake).__name__}: {mistake})"
        error = record.exc_info[1] if record.exc_info else None
        say(text, *(traceback_lines(error) if error is not None else ()), err=True)


def open_standard_streams() -> None:
    """Replace closed standard streams by ``/dev/null``, so that no file of a run gets their descriptors."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def log_to_terminal() -> None:
    """Print warnings and errors that no handler of the application receives, in place of Python's own handler."""
    logging.lastResort = LogHandler(logging.WARNING)


def traceback_lines(error: BaseException) -> list[str]:
    """The traceback of an exception, indented so that none of its lines looks like another record."""
    return [f"    {line}" for line in "".join(traceback.format_exception(error)).rstrip("\n").split("\n")]


def _write(stream: TextIO, text: str) -> None:
    _progress_line.clear()
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        if error.errno != errno.EIO or not leave_closed_terminal():
            raise


def leave_closed_terminal() -> bool:
    """Write to ``/dev/null`` in place of a terminal that was closed. Whether one was."""
    left = False
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        if any(state & (select.POLLHUP | select.POLLERR) for _, state in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
            left = True
    return left
