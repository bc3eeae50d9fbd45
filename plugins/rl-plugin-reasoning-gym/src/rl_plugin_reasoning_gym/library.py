"""reasoning-gym in a child process.

Four generators depend on the hash seed of Python, one draws from numpy's global generator, one prints, and a verifier
may not end. The child has a fixed hash seed, and limits of time and memory. Our own process never imports the library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rlcore.errors import ExplainedError
from rlcore.json_files import parse_json

CHILD = Path(__file__).with_name("child.py")
LONGEST_ANSWER = 1 << 26
"""Limit of an answer of the child in bytes."""
FIXED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class LibraryError(ExplainedError):
    """reasoning-gym raised an exception, or its process ended."""


class Library:
    """Starts the child when it is needed, and again after it ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, call: str, **arguments: Any) -> Any:
        """The result of a function of `rl_plugin_reasoning_gym.child`.

        Raises:
            LibraryError: it raised an exception, or exceeded the limits.
        """
        question = json.dumps({"call": call, "arguments": arguments}).encode() + b"\n"
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(question)
                process.stdin.flush()
                answer = parse_json(process.stdout.readline(LONGEST_ANSWER))
                assert isinstance(answer, dict)
            except (OSError, ValueError):
                self._end()
                raise LibraryError(
                    "the process of reasoning-gym ended", found="it exceeded the limit of time or memory", where=call
                ) from None
        if "error" in answer:
            raise LibraryError(f"reasoning-gym raised {answer['error']}", where=call)
        return answer["value"]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            pipe, command = subprocess.PIPE, [sys.executable, "-P", str(CHILD)]  # no modules of the folder of CHILD
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=os.environ | FIXED
            )
            self._end_child = weakref.finalize(self, _end, self._process, os.getpid())
        return self._process

    def _end(self) -> None:
        self._end_child()
        self._process = None


def library() -> Library:
    """The library of this process. A fork gets another child."""
    return _library(os.getpid())


@cache
def _library(process: int) -> Library:
    return Library()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # a question that was not read
                pipe.close()


__all__ = ["Library", "LibraryError", "library"]
