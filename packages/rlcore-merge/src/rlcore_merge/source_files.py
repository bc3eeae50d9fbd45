"""Files of a source folder. Links are followed only inside of it, so that no other file is read or copied."""

from __future__ import annotations

from pathlib import Path

from rlcore.errors import UserError


def root_of(folder: Path) -> Path:
    """The folder that links of ``folder`` may refer to: itself or, for a snapshot in the Hub cache, its repository.

    The files of a snapshot are links to ``blobs/`` in the folder of the repository.
    """
    resolved = folder.resolve()
    inner = resolved
    for outer in resolved.parents:
        if inner.name == "snapshots" and outer.name.startswith("models--"):
            return outer
        inner = outer
    return resolved


def inside(path: Path, folder: Path) -> Path:
    """The path itself, which may be a link to another place in the folder.

    Raises:
        UserError: the path is outside of the folder after all links are followed.
    """
    root = root_of(folder)
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise UserError("a file cannot be read", found=str(error), where=str(path)) from None
    if target != root and root not in target.parents:
        raise UserError(
            "a link leads out of the source folder",
            found=f"{path.name} refers to {target}",
            where=str(path),
            fix=f"replace the link with a copy, or pass a folder that contains {target}",
        )
    return path
