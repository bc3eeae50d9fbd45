"""A run inside of a process that goes on afterwards."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rlcore.models.weights import restore_threads
from rlcore.session.exits import system_exits_reported
from rlcore.terminal import LogHandler


@contextmanager
def calling_process_kept() -> Iterator[None]:
    """Leave the calling process as it was: its logging, its number of CPU threads, and the process itself.

    Raises:
        ComponentExitError: a component called ``sys.exit``.
    """
    before, logging.lastResort = logging.lastResort, LogHandler(logging.WARNING)
    try:
        with system_exits_reported(), warnings.catch_warnings():
            # Importing tqdm in a notebook without ipywidgets warns, but rlcore shows no bars of tqdm.
            warnings.filterwarnings("ignore", message="IProgress not found")
            yield
    finally:
        logging.lastResort = before
        restore_threads()


__all__ = ["calling_process_kept"]
