"""Read JSON files of checkpoints, which may be damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlcore.errors import UserError


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `UserError` if the file cannot be read or holds another type."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path.name} cannot be read", found=str(error), where=str(path)) from None
    if not isinstance(content, dict):
        raise UserError(f"{path.name} is not a JSON object", found=type(content).__name__, where=str(path))
    return content
