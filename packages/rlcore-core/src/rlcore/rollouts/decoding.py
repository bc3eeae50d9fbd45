"""The text of the tokens of a run, whose tokenizer may come from somebody else and is not trusted."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rlcore.json_files import parse_json

Decode = Callable[[list[int]], str]
"""Returns the text of token ids, with special tokens."""
Decoder = Callable[[], Decode | None]
"""Loads a decoder when it is needed; None if there is none."""

CHILD = Path(__file__).with_name("decoding_child.py")
LOADING_S, DECODING_S = 20.0, 5.0
"""Limits in seconds of loading a tokenizer, and of decoding once."""
TOGETHER = 4096
"""Lists of ids that are decoded at a time, so that long sequences stay far below the limit."""
LONGEST_ANSWER = 1 << 26
"""Limit of the texts of one answer in bytes."""


def no_decoder() -> None:
    """A `Decoder` without one."""


def loaded(file: Path) -> Decoding | None:
    """The tokenizer of a file in a child process; None if it cannot be loaded."""
    with suppress(OSError):
        decoding = Decoding(file)
        return decoding if decoding.works() else None
    return None


class Decoding:
    """A tokenizer in a child process. It is killed when this object is collected, or this process ends.

    If the child fails, is late, or sends anything but texts, it is killed, and there are no texts from then on.

    Args:
        file: a ``tokenizer.json``

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-P", str(CHILD), str(file)]  # no modules of the folder of CHILD
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self._end = weakref.finalize(self, _end, self._process)
        self._lock = threading.Lock()

    def works(self) -> bool:
        """Whether the tokenizer is loaded. Waits until it is."""
        return bool(self._ask([[]], LOADING_S))

    def __call__(self, ids: list[int]) -> str:
        """The text of token ids; empty if they cannot be decoded."""
        return "".join(self._ask([ids], DECODING_S))

    def texts(self, ids: Sequence[list[int]]) -> list[str]:
        """The text of each list of token ids; no texts if they cannot be decoded."""
        texts: list[str] = []
        for start in range(0, len(ids), TOGETHER):
            part = self._ask(ids[start : start + TOGETHER], DECODING_S)
            if not part:
                return []
            texts += part
        return texts

    def _ask(self, ids: Sequence[list[int]], limit_s: float) -> list[str]:
        with self._lock:
            late = threading.Timer(limit_s, self._process.kill)  # ends reading and writing
            late.daemon = True
            late.start()
            try:
                texts = self._answer(ids)
            except (OSError, ValueError):  # it has ended, or sent no JSON
                texts = None
            finally:
                late.cancel()
        if isinstance(texts, list) and len(texts) == len(ids) and all(isinstance(text, str) for text in texts):
            return texts
        self._end()
        return []

    def _answer(self, ids: Sequence[list[int]]) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(ids).encode() + b"\n")
        self._process.stdin.flush()
        return parse_json(self._process.stdout.readline(LONGEST_ANSWER))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # a question that was not read
                pipe.close()


__all__ = ["Decode", "Decoder", "Decoding", "loaded", "no_decoder"]
