"""Errors as values, which processes of a run send to each other and to their launcher. Does not import torch."""

from __future__ import annotations

import os
from typing import Any

from rlcore.errors import EngineError, ProcessError, RlcoreError, UserError
from rlcore.session.processes import LAUNCHER

from rlcore_trainer.batching.sharding import Rank

FAILURE = "rlcore/failure"
"""Store key for the error of the first process that fails."""


def is_abandoned() -> bool:
    """Return whether the ``rlcore run`` that started this process has ended."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())


def told_error(error: BaseException | None, rank: Rank) -> dict[str, Any] | None:
    """Return an error as plain data, or None if there is no error."""
    if error is None:
        return None
    if isinstance(error, UserError):
        return {"kind": "user", "parts": [error.message, error.found, error.where, error.fix]}
    if isinstance(error, KeyboardInterrupt):
        return {"kind": "interrupt"}
    kind = "engine" if isinstance(error, EngineError) else "process"
    text = str(error) if isinstance(error, RlcoreError) else f"{type(error).__name__}: {first_line(error)}"
    if not isinstance(error, ProcessError):
        text = f"rank {rank.index} of {rank.world_size} failed: {text}"
    return {"kind": kind, "text": text}


def error_of(told: dict[str, Any], *, recoverable: bool = True) -> BaseException:
    """Return the error to raise in other processes. ``recoverable`` tells whether all of them go on."""
    if told["kind"] == "user":
        message, found, where, fix = told["parts"]
        return UserError(message, found=found, where=where, fix=fix)
    if told["kind"] == "interrupt":
        return KeyboardInterrupt()
    return EngineError(told["text"]) if told["kind"] == "engine" and recoverable else ProcessError(told["text"])


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error).splitlines() or [""])[0]
