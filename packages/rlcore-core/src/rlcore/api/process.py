"""A run inside of a process that goes on afterwards."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlcore.models.weights import restore_threads
from rlcore.session.exits import system_exits_reported
from rlcore.terminal import LogHandler

TRANSFORMERS = "transformers.utils.logging"


@contextmanager
def calling_process_kept() -> Iterator[None]:
    """Leave the calling process as it was: its logging, its number of CPU threads, and the process itself.

    Raises:
        ComponentExitError: a component called ``sys.exit``.
    """
    before, logging.lastResort = logging.lastResort, LogHandler(logging.WARNING)
    bars = _transformers_bars()
    try:
        with system_exits_reported(), warnings.catch_warnings():
            # Importing tqdm in a notebook without ipywidgets warns, but rlcore shows no bars of tqdm.
            warnings.filterwarnings("ignore", message="IProgress not found")
            yield
    finally:
        logging.lastResort = before
        restore_threads()
        _restore_transformers(bars)


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
