"""The tokenizer of a run, whose folder or whose model may have it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rlcore.errors import RlcoreError
from rlcore.rollouts.decoding import Decode, loaded
from rlcore.runs.directory import config_layer


def decoder_of(path: Path) -> Decode | None:
    """The decoder of the run that a file of rollouts belongs to; None if its tokenizer is not here, or unusable."""
    file = tokenizer_of(path.parent.parent)
    return loaded(file) if file is not None else None


def tokenizer_of(run: Path) -> Path | None:
    """The file of the tokenizer of a run; None if it is not here."""
    folders = [*sorted((run / "checkpoints").glob("[0-9]*/model")), run / "model"]
    with suppress(RlcoreError, OSError, ValueError, KeyError, TypeError):
        folders.append(Path(str(config_layer(run).tree["model"]["path"])).expanduser())
    return next((folder / "tokenizer.json" for folder in folders if (folder / "tokenizer.json").is_file()), None)


__all__ = ["decoder_of", "tokenizer_of"]
