"""Texts that end a generation, seen in its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcore.errors import EngineError
from tokenizers import Tokenizer


class StopTexts:
    """Whether the newest token completes one of the texts.

    Only the last tokens are decoded: each stands for a byte at least, so no more of them can hold the text.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer, self._texts = tokenizer, tuple(texts)
        self._tail = max(len(text.encode()) for text in texts) + 4  # and a character cut at the tail's start

    def __call__(self, tokens: list[int]) -> bool:
        """Look at the tokens of a generation, the newest last."""
        tail = self._tokenizer.decode(tokens[-self._tail :], skip_special_tokens=False)
        return any(text in tail for text in self._texts)


def load_tokenizer(folder: Path | None) -> Tokenizer:
    """The tokenizer of the model's folder.

    Raises:
        EngineError: there is none.
    """
    path = None if folder is None else folder / "tokenizer.json"
    if path is None or not path.is_file():
        raise EngineError(
            f"stop texts need the model's tokenizer, and {path or 'there is no model folder'} is not there"
        )
    return Tokenizer.from_file(str(path))
