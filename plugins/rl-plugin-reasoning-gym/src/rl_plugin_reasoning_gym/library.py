"""reasoning-gym in a child process.

Four generators depend on the hash seed of Python, one draws from numpy's global generator, one prints, and a verifier
may not end. The child has a fixed hash seed, and limits of time and memory. Our own process never imports the library.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rlcore.errors import ExplainedError
from rlcore.transport.lines import LineProcess
from rlcore.transport.remote import Ended

CHILD = Path(__file__).with_name("child.py")
LONGEST_ANSWER = 1 << 26
"""Limit of an answer of the child in bytes."""
FIXED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class LibraryError(ExplainedError):
    """reasoning-gym raised an exception, or its process ended."""


class Library:
    """Starts the child when it is needed, and again after it ended."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", str(CHILD)]  # no modules of the folder of CHILD
        self._child = LineProcess(command, os.environ | FIXED, longest=LONGEST_ANSWER)

    def ask(self, call: str, **arguments: Any) -> Any:
        """The result of a function of `rl_plugin_reasoning_gym.child`.

        Raises:
            LibraryError: it raised an exception, or exceeded the limits.
        """
        try:
            answer = self._child.ask({"call": call, "arguments": arguments})
        except Ended as ended:
            found = f"it {ended}; a limit of time or memory may be the reason"
            raise LibraryError("the process of reasoning-gym ended", found=found, where=call) from None
        if "error" in answer:
            raise LibraryError(f"reasoning-gym raised {answer['error']}", where=call)
        return answer["value"]


def library() -> Library:
    """The library of this process. A fork gets another child."""
    return _library(os.getpid())


@cache
def _library(process: int) -> Library:
    return Library()


__all__ = ["Library", "LibraryError", "library"]
