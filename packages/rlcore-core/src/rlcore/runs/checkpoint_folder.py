"""Reads the metadata of a checkpoint without loading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlcore.errors import UserError


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """The content of a checkpoint's ``trainer.json``. The sizes of all listed files are checked.

    Raises:
        UserError: the checkpoint is incomplete.
    """
    fix = "use another folder in checkpoints/"
    try:
        told: dict[str, Any] = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
        sizes = dict(told["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("this is not a complete checkpoint", found=str(error), where=str(folder), fix=fix) from None
    for name, size in sizes.items():
        there = (folder / name).stat().st_size if (folder / name).is_file() else None
        if there != size:
            found = f"{name} is missing" if there is None else f"{name} has {there} bytes, not {size}"
            raise UserError("this checkpoint is damaged", found=found, where=str(folder), fix=fix)
    return told


__all__ = ["read_checkpoint"]
