"""A run inside of a process that goes on afterwards."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlcore.console.terminal import LogHandler, in_notebook
from rlcore.models.threads import threads_kept
from rlcore.session.exits import exits_reported

TRANSFORMERS = "transformers.utils.logging"


@contextmanager
def calling_process_kept() -> Iterator[None]:
    """Leave the calling process as it was: its logging, its number of CPU threads, and the process itself.

    Raises:
        ComponentExitError: a component called ``sys.exit``.
    """
    bars = _transformers_bars()
    try:
        with threads_kept(), _logging_escaped(), _tqdm_imported(), exits_reported():
            yield
    finally:
        _restore_transformers(bars)


@contextmanager
def _logging_escaped() -> Iterator[None]:
    """Escape what Python itself would print of log records, unless a call in another thread does so already."""
    before = logging.lastResort
    if isinstance(before, LogHandler):
        yield
        return
    logging.lastResort = LogHandler(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before


@contextmanager
def _tqdm_imported() -> Iterator[None]:
    """Hide the warning of tqdm about missing widgets of Jupyter: rlcore shows no bars of tqdm."""
    if not in_notebook() or "tqdm.auto" in sys.modules:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        yield


def _transformers_bars() -> tuple[int, bool]:
    """The verbosity of transformers and whether it shows progress bars, which loading a model turns off."""
    module: Any = sys.modules.get(TRANSFORMERS)
    return (logging.WARNING, True) if module is None else (module.get_verbosity(), module.is_progress_bar_enabled())


def _restore_transformers(before: tuple[int, bool]) -> None:
    module: Any = sys.modules.get(TRANSFORMERS)
    if module is None or before == _transformers_bars():
        return
    level, bars = before
    module.set_verbosity(level)
    if bars:
        module.enable_progress_bar()


__all__ = ["calling_process_kept"]
