"""What a model folder may contain: no code that must run, and nothing outside of the folder."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from rlcore.errors import UserError
from rlcore.json_files import refuse_special_files
from rlcore.models.config_file import json_object

INDEX = "model.safetensors.index.json"
CODE = "auto_map"
"""Key of ``config.json`` that names Python files of the folder, which transformers would run."""


def check_contents(folder: Path, *, where: str | None = None) -> None:
    """Check that loading the folder runs no code of it, and reads no file outside of it.

    The links of the Hugging Face cache, which lead from a snapshot to the blobs of the same model, are allowed.

    Raises:
        UserError: the model needs code, a link or an index leads out of the folder, or a file is not a regular one.
    """
    refuse_special_files(folder, where=where)
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not path.is_dir():
            inside(folder, path.name, where=where)
    for index in sorted(folder.glob("*.index.json")):
        indexed_files(index)
    if CODE in json_object(folder / "config.json"):
        raise UserError(
            "the model needs code that its folder brings, which rlcore does not run",
            found=f"{CODE} in config.json",
            where=str(folder),
            fix=f"use a model that transformers supports itself; if it supports this one, remove {CODE}",
        )


def indexed_files(index: Path) -> list[Path]:
    """The weight files that an index names, sorted.

    Raises:
        UserError: the index cannot be read, or names a file outside of its folder.
    """
    places = json_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise UserError(
            "cannot read the index of the weights",
            found="no table weight_map from tensors to files",
            where=str(index),
            fix="copy or save the model again",
        )
    return [inside(index.parent, name, where=str(index)) for name in sorted(set(places.values()))]


def inside(folder: Path, name: str, *, where: str | None = None) -> Path:
    """The file of this name in the folder, which may be a link only to a file inside.

    Raises:
        UserError: the file is outside of the folder.
    """
    path, pure = folder / name, PurePosixPath(name)
    refused = (
        not name or "\0" in name or pure.is_absolute() or ".." in pure.parts or PureWindowsPath(name).is_absolute()
    )
    if not refused:
        try:
            real, home = path.resolve(), folder.resolve()
        except (OSError, RuntimeError):  # links in a circle
            refused = True
        else:
            refused = not (real.is_relative_to(home) or _in_cache(home, real))
    if refused:
        raise UserError(
            "a model folder must hold its files itself",
            found=f"{name!r} leads out of {folder}",
            where=where or str(folder),
            fix="copy the file into the folder",
        )
    return path


def _in_cache(home: Path, real: Path) -> bool:
    """Whether a link from a snapshot of the Hugging Face cache leads to the blobs of the same model."""
    return home.parent.name == "snapshots" and real.parent == home.parent.parent / "blobs"
