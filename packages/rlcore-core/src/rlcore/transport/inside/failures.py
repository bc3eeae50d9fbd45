"""An exception as plain data."""

from __future__ import annotations

import os
import sys
from typing import Any

from .targets import RLCORE_PYTHON

LONGEST = 4000
LAST_LINES = 12
KINDS = ("UserError", "ToolFailure", "SandboxFailure", "EnvironmentFailure")
"""Errors of rlcore, or of its stand-in, that the other side raises again."""


def described(error: BaseException, file: str = "") -> dict[str, Any]:
    """Type, text, place and the last frames of an exception, and which error of rlcore it is.

    The place is the last frame in ``file``, if there is one, because a library that it calls is rarely wrong.
    """
    import traceback  # only here: an interpreter should start quickly

    try:
        text = str(error)
    except BaseException:
        text = "(its message cannot be read)"
    name = getattr(error, "name", None)
    if isinstance(error, ImportError) and str(name).split(".")[0] == "rlcore" and sys.version_info < RLCORE_PYTHON:
        text += " (this Python is too old for rlcore; its stand-in has rlcore.types and rlcore.errors)"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_own(frame.filename)]
    place = ""
    if frames:
        last = next((frame for frame in reversed(frames) if frame.filename == file), frames[-1])
        place = f"{os.path.basename(last.filename)}:{last.lineno or 0} in {last.name}"
    found = {
        "type": type(error).__name__,
        "text": text[:LONGEST],
        "place": place,
        "trace": "".join(traceback.format_list(frames[-LAST_LINES:]))[-LONGEST:],
    }
    names = {base.__name__ for base in type(error).__mro__ if base.__module__.split(".")[0] == "rlcore"}
    found["kind"] = next((kind for kind in KINDS if kind in names), "")
    for part in ("message", "found", "where", "fix"):
        value = getattr(error, part, None)
        if found["kind"] == "UserError" and isinstance(value, str):
            found[part] = value[:LONGEST]
    return found


def _is_own(path: str) -> bool:
    return os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(__file__)) or "importlib" in path
