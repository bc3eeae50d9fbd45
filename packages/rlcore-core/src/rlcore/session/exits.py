"""Components may not end the process: an exit would look like success and lose what the run has not saved."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rlcore.errors import ComponentExitError
from rlcore.plugins.discovery import HOSTS

OWN = frozenset({"rlcore", *(name.replace("-", "_") for name in HOSTS)})
"""Packages that may end the process, for example when an interrupted call does not return."""


@contextmanager
def exits_reported() -> Iterator[None]:
    """Turn ``sys.exit`` and ``os._exit`` of a component into a `ComponentExitError`.

    The error is raised where the component called the function, so a reward or tool that ends the process fails like
    any other. Child processes and rlcore itself may still exit. Native code that ends the process is not noticed.
    """
    before, owner = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        frame = sys._getframe(1)
        if os.getpid() != owner or str(frame.f_globals.get("__name__")).partition(".")[0] in OWN:
            before(status)
        raise ComponentExitError(_sentence(f"os._exit({status})", frame.f_code.co_filename, frame.f_lineno))

    os._exit = refuse
    try:
        with system_exits_reported():
            yield
    finally:
        os._exit = before


@contextmanager
def system_exits_reported() -> Iterator[None]:
    """As `exits_reported`, but only for ``sys.exit``, without a change that other threads could notice."""
    try:
        yield
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ComponentExitError(_sentence(f"sys.exit({error.code!r})", place.filename, place.lineno)) from error


def _sentence(call: str, file: str, line: int | None) -> str:
    return f"a component tried to end the process: {call} in {file}:{line}"


__all__ = ["exits_reported", "system_exits_reported"]
