"""The text of the tokens of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.errors import RlcoreError
from rlcore.runs.directory import config_layer

Decode = Callable[[list[int]], str]
"""Returns the text of token ids, with special tokens."""
Decoder = Callable[[], Decode | None]
"""Loads a decoder when it is needed; None if there is none."""


def no_decoder() -> None:
    """A `Decoder` without one."""


def decoder_of(path: Path) -> Decode | None:
    """The decoder of the run that a file of rollouts belongs to; None if its tokenizer is not here."""
    run = path.parent.parent
    folders = [*sorted((run / "checkpoints").glob("[0-9]*/model")), run / "model"]
    with suppress(RlcoreError, OSError, ValueError, KeyError, TypeError):
        folders.append(Path(str(config_layer(run).tree["model"]["path"])).expanduser())
    file = next((folder / "tokenizer.json" for folder in folders if (folder / "tokenizer.json").is_file()), None)
    if file is None:
        return None
    try:
        from tokenizers import Tokenizer

        tokenizer: Any = Tokenizer.from_file(str(file))
    except Exception:  # a damaged tokenizer only costs the text
        return None
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False))


__all__ = ["Decode", "Decoder", "decoder_of", "no_decoder"]
