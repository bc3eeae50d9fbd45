"""Components may not end the process: an exit would look like success and lose what the run has not saved."""

from __future__ import annotations

import os
import posix
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from rlcore.errors import ComponentExitError
from rlcore.plugins.discovery import HOSTS

OWN = frozenset({"rlcore", *(name.replace("-", "_") for name in HOSTS)})
"""Packages that may end the process, for example when an interrupted call does not return."""
ENDING = ("_exit", "execv", "execve")
"""Functions of ``os`` that end the program of the process. The other ``os.exec…`` functions call the last two."""


@contextmanager
def exits_reported() -> Iterator[None]:
    """Turn ``sys.exit``, ``os._exit`` and ``os.exec…`` of a component into a `ComponentExitError`.

    The error is raised where the component called the function, so a reward or tool that ends the process fails like
    any other. Child processes and rlcore itself may still exit. Native code that ends the process is not noticed.
    """
    before = {name: getattr(os, name) for name in ENDING}
    owner = os.getpid()
    for name, end in before.items():
        _replace(name, _refusing(name, end, owner))
    try:
        with system_exits_reported():
            yield
    finally:
        for name, end in before.items():
            _replace(name, end)


@contextmanager
def system_exits_reported() -> Iterator[None]:
    """As `exits_reported`, but only for ``sys.exit``, without a change that other threads could notice."""
    try:
        yield
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise ComponentExitError(_sentence(f"sys.exit({error.code!r})", place.filename, place.lineno)) from error


def _refusing(name: str, end: Callable[..., NoReturn], owner: int) -> Callable[..., NoReturn]:
    def refuse(*arguments: object) -> NoReturn:
        frame = _caller(sys._getframe(1))
        if os.getpid() != owner or str(frame.f_globals.get("__name__")).partition(".")[0] in OWN:
            end(*arguments)
        call = f"os.{name}({', '.join(map(repr, arguments[:1]))})"
        raise ComponentExitError(_sentence(call, frame.f_code.co_filename, frame.f_lineno))

    return refuse


def _caller(frame: FrameType) -> FrameType:
    """The frame below those of ``os``."""
    while frame.f_globals.get("__name__") == "os" and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _replace(name: str, function: Callable[..., NoReturn]) -> None:
    for module in (os, posix):
        setattr(module, name, function)


def _sentence(call: str, file: str, line: int | None) -> str:
    return f"a component tried to end the process: {call} in {file}:{line}"


__all__ = ["exits_reported", "system_exits_reported"]
