"""Read JSON that others have written: every failure is a `ValueError`, and sizes have limits."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from rlcore.errors import UserError

LONGEST_LINE = 256_000_000
"""Limit of one line in bytes. A stored group of long trajectories can have many megabytes."""
LARGEST_FILE = 1_000_000_000
"""Limit in bytes of a file that is read as a whole. Larger data belongs in a .jsonl file, which is read by line."""
MAX_DEPTH = 100
"""Limit of nested lists and objects."""
MOST_VALUES = 500_000
"""Limit of the brackets and commas in an answer of a service, which bounds its values: a million take seconds."""
TOO_DEEP = f"more than {MAX_DEPTH} nested lists and objects"


class ReadsLines(Protocol):
    """A file of bytes."""

    def readline(self, size: int, /) -> bytes:
        """The next line, or its first ``size`` bytes."""
        ...


def parse_answer(body: bytes) -> Any:
    """The value of a JSON text that a service sent, which is parsed in the event loop.

    Raises:
        ValueError: as `parse_json`, or it has too many values.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} brackets and commas")
    return parse_json(body)


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Lone surrogates are kept.

    Raises:
        ValueError: the text is not valid JSON in UTF-8, or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogatepass")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        check_depth(value)
    return value


def read_json(path: Path, *, limit: int = LARGEST_FILE) -> Any:
    """The value of a JSON file. A byte order mark is ignored.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is too large, or not valid JSON.
    """
    return parse_json(read_text(path, limit=limit))


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read its bytes. Opening a pipe, or reading it, may never end.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, socket or device"
            raise OSError(number, f"{kind}, not a regular file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: Path, *, limit: int = LARGEST_FILE) -> str:
    """The text of a UTF-8 file without its byte order mark. Raises like `read_json`."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"more than {limit:,} bytes; the limit of this file")
    return data.decode("utf-8-sig")


def json_lines(file: ReadsLines, *, limit: int = LONGEST_LINE) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1. A byte order mark is ignored.

    Raises:
        ValueError: a line is too long.
    """
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise ValueError(f"line {number} has more than {limit:,} bytes, the limit of a line")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line


def refuse_special_files(folder: Path, *, where: str | None = None) -> None:
    """Reject pipes, sockets and devices in a folder, also behind links: reading one may never end.

    Raises:
        UserError: there is one.
    """
    for path in sorted(folder.iterdir()):
        if path.exists() and not path.is_file() and not path.is_dir():
            fix = "remove it, or replace it with the file"
            raise UserError(f"{path} is not a regular file", found="a pipe, socket or device", where=where, fix=fix)


def to_line(value: Any) -> str:
    """JSON on one line. Text is readable unless it contains lone surrogates, which are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def check_depth(value: Any) -> None:
    """Raise `ValueError` if lists and objects are nested too deeply. Works without recursion."""
    depth, level = 0, [value] if isinstance(value, (dict, list)) else []
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(TOO_DEEP)
        inside = (container.values() if isinstance(container, dict) else container for container in level)
        level = [item for items in inside for item in items if isinstance(item, (dict, list))]
