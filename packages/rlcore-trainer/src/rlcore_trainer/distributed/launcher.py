"""Values shared between a process and its launcher."""

from __future__ import annotations

import os

from rlcore.session.processes import LAUNCHER

FAILURE = "rlcore/failure"
"""Store key for the error of the first process that fails."""


def is_abandoned() -> bool:
    """Return whether the ``rlcore run`` that started this process has ended."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())
