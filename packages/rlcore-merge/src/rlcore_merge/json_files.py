"""Read JSON files of checkpoints, which may be damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import read_json


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `UserError` if the file cannot be read or holds another type."""
    fix = "restore the file, or save the checkpoint again"
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} cannot be read", found=str(error), where=str(path), fix=fix) from None
    if not isinstance(content, dict):
        raise UserError(f"{path.name} is not a JSON object", found=type(content).__name__, where=str(path), fix=fix)
    return content
