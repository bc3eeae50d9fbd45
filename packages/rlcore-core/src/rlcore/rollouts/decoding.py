"""The text of the tokens of a run, whose tokenizer may come from somebody else and is not trusted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rlcore.transport.lines import LineProcess
from rlcore.transport.remote import Ended

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
    decoding = Decoding(file)
    return decoding if decoding.works() else None


class Decoding:
    """A tokenizer in a child process. If that fails, is late, or sends anything but texts, there are no more texts.

    Args:
        file: a ``tokenizer.json``
    """

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-P", str(CHILD), str(file)]  # no modules of the folder of CHILD
        self._child = LineProcess(command, os.environ, longest=LONGEST_ANSWER)
        self._failed = False

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
        if not self._failed:
            with suppress(Ended):
                texts = self._child.ask(ids, limit_s)
                if isinstance(texts, list) and len(texts) == len(ids) and all(isinstance(text, str) for text in texts):
                    return texts
            self._failed = True
            self._child.kill()
        return []


__all__ = ["Decode", "Decoder", "Decoding", "loaded", "no_decoder"]
