"""Deletes folders that others have filled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def delete_folder(path: Path) -> None:
    """Delete a folder with all that is in it, also if it is deeper than Python can enter, or denies access."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except (OSError, RecursionError):
        for command in ("chmod", "-R", "u+rwx"), ("rm", "-rf"):
            subprocess.run([*command, str(path)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
