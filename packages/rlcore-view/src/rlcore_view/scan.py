"""Read groups in threads to search them for a text."""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, islice

from rlcore.errors import DataError
from rlcore.json_files import json_lines, open_regular
from rlcore.rollouts.texts import matches, may_contain_of

from rlcore_view.overview import Located, Texts

THREADS = 4
"""Threads that read. Python runs beside the decompression of others, which takes three quarters of the time."""
BATCH = 32
"""Groups that a thread reads at a time: a task for each group would take as long as its search."""
LONGEST_GROUP = 32_000_000
"""Bytes of a group that are searched. Each thread has one in memory."""
_PARSING = threading.Lock()
"""Parsed groups need several times their memory, and threads do not make parsing faster."""


def scan(groups: Iterable[Located], text: str) -> Iterator[tuple[list[Located], Texts]]:
    """The trajectories that contain a text, whatever its case, for a few groups at a time, with these groups.

    Raises:
        DataError: a file is damaged.
    """
    wanted = text.casefold()
    may_contain = may_contain_of(wanted)
    waiting: deque[tuple[list[Located], Future[Texts]]] = deque()
    threads = ThreadPoolExecutor(THREADS)
    try:
        for batch in _batches(groups):
            waiting.append((batch, threads.submit(_search, batch, wanted, may_contain)))
            if len(waiting) > THREADS:
                first, found = waiting.popleft()
                yield first, found.result()
        for last, found in waiting:
            yield last, found.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _batches(groups: Iterable[Located]) -> Iterator[list[Located]]:
    """Groups that follow each other in the same file: a few, or all if the file has to be read as a whole."""
    for (_, is_known), same in groupby(groups, lambda one: (one.path, one.span is not None)):
        while batch := list(islice(same, BATCH) if is_known else same):
            yield batch


def _search(groups: list[Located], wanted: str, may_contain: Callable[[bytes], bool]) -> Texts:
    path, found = groups[0].path, Texts()
    try:
        with open_regular(path) as raw:
            for group, line in _lines(raw.fileno(), groups):
                if may_contain(line):
                    with _PARSING:
                        found |= {group.trajectory(sibling): around for sibling, around in matches(line, wanted)}
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        fix = "look only into other steps, or restore the file"
        raise DataError(f"cannot search {path}", found=f"{type(error).__name__}: {error}", fix=fix) from None
    return found


def _lines(file: int, groups: list[Located]) -> Iterator[tuple[Located, bytes]]:
    """The stored line of each group. A file without an index is read as a whole."""
    for group in groups:
        if group.span is not None:
            offset, length = group.span
            yield group, zlib.decompressobj(wbits=31).decompress(os.pread(file, length, offset), LONGEST_GROUP)
    wanted = {group.place[1]: group for group in groups if group.span is None}
    if wanted:
        is_compressed = groups[0].path.suffix == ".gz"
        with open(file, "rb", closefd=False) as raw, gzip.open(raw) if is_compressed else raw as lines:
            for number, (_, line) in enumerate(json_lines(lines)):
                if number in wanted:
                    yield wanted[number], line


__all__ = ["scan"]
