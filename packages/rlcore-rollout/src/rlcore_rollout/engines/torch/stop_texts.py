"""Detects stop texts in generated tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcore.errors import EngineError
from tokenizers import Tokenizer


class StopTexts:
    """Checks whether the newest token completes one of the texts.

    Only the last tokens are decoded. Each token is at least one byte, so the text is never longer than the decoded
    tail.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self._tokenizer, self._texts = tokenizer, tuple(texts)
        self._tail = max(len(text.encode()) for text in texts) + 4  # plus a character cut at the start of the tail

    def __call__(self, tokens: list[int]) -> bool:
        """Check the tokens of a generation, with the newest token last."""
        tail = self._tokenizer.decode(tokens[-self._tail :], skip_special_tokens=False)
        return any(text in tail for text in self._texts)


def load_tokenizer(folder: Path | None) -> Tokenizer:
    """Load the tokenizer of the model's folder.

    Raises:
        EngineError: there is no tokenizer.
    """
    path = None if folder is None else folder / "tokenizer.json"
    if path is None or not path.is_file():
        raise EngineError(
            f"stop texts need the model's tokenizer: {f'{path} does not exist' if path else 'there is no model folder'}"
        )
    return Tokenizer.from_file(str(path))
