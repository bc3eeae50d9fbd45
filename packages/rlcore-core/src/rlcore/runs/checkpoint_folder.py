"""The manifest of a checkpoint: the size and checksum of each of its files.

A trainer calls `write_manifest` when a checkpoint is complete but does not have its final name yet. `check_checkpoint`
compares the files with the manifest without loading them.
"""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlcore.errors import UserError
from rlcore.json_files import open_regular, read_json

FORMAT = 3
MANIFEST = "manifest.json"
PROGRESS = "trainer.json"
"""Written by the trainers of rlcore, also in format 1, which had no manifest."""
KEPT_MODELS = ("model", "checkpoints/reference")
"""Models of a run outside of its checkpoints: the one that a ``builtin:`` builder made, and the copy for a KL term."""
_READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def write_manifest(folder: Path, step: int = 0) -> None:
    """Write ``manifest.json`` with the size and SHA-256 of every other file in a checkpoint, or in a kept model."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    sizes = {name: (folder / name).stat().st_size for name in names}
    sums = _checksums(folder, names)
    files = {name: {"bytes": sizes[name], "sha256": sums[name]} for name in names}
    (folder / MANIFEST).write_text(_text(step, files), encoding="utf-8")


def has_manifest(folder: Path) -> bool:
    """Whether a checkpoint can be checked. Other trainers may write checkpoints without a manifest."""
    return (folder / MANIFEST).exists() or (folder / PROGRESS).exists()


def check_checkpoint(
    folder: Path, *, checksums: bool = True, within: str = "", command: str = "rlcore run --resume"
) -> None:
    """Compare the files of a checkpoint with its manifest.

    Args:
        folder: ``checkpoints/NNNNNN`` of a run
        checksums: whether to read every file; if not, only their sizes are compared
        within: check only files whose names start with this
        command: the command to suggest with an earlier checkpoint

    Raises:
        UserError: files are missing or damaged, and all of them are named, or the format is unknown. The fix is the
            command with the newest earlier checkpoint that is complete.
    """
    flaw = _flaw(folder, checksums, within)
    if flaw is None:
        return
    message, found = flaw
    earlier = next((path for path in _earlier(folder) if _flaw(path, checksums, within) is None), None)
    fix = f"{command} {earlier}" if earlier is not None else "start a new run: no earlier checkpoint is complete"
    raise UserError(message, found=found, where=str(folder), fix=fix)


def kept_models(run: Path) -> list[Path]:
    """The models of a run outside of its checkpoints, from which a resumed run may continue."""
    return [run / name for name in KEPT_MODELS if (run / name).is_dir()]


def check_kept_model(folder: Path) -> None:
    """Compare a model of a run outside of its checkpoints with its manifest. Raises `UserError` if it is damaged."""
    if (flaw := _flaw(folder, True, "")) is not None:
        _, found = flaw
        fix = "restore the folder from a copy, or start a new run"
        raise UserError("a model of the run is damaged", found=found, where=str(folder), fix=fix)


def _flaw(folder: Path, checksums: bool, within: str) -> tuple[str, str] | None:
    """What is wrong with a checkpoint, and where; None for a complete one."""
    damaged = "the checkpoint is damaged"
    try:
        with open_regular(folder / MANIFEST) as file:
            text = file.read().decode("utf-8")
    except FileNotFoundError:
        if _has_first_format(folder):
            return "the checkpoint has an unsupported format", f"format 1, which has no checksums, in {PROGRESS}"
        return damaged, f"{MANIFEST} is missing"
    except _READ_ERRORS as error:
        return damaged, f"{MANIFEST} cannot be read: {error}"
    try:
        manifest: dict[str, Any] = json.loads(text)
        if (number := manifest["format"]) != FORMAT:
            found = f"format {number!r:.40} in {MANIFEST}; this version reads {FORMAT}"
            return "the checkpoint has an unknown format", found
        step, files = manifest["step"], manifest["files"]
        if text != _text(step, files):
            raise ValueError("its own checksum does not match")
        sizes = {str(name): int(file["bytes"]) for name, file in files.items()}
        sums = {str(name): str(file["sha256"]) for name, file in files.items()}
    except _READ_ERRORS as error:
        return damaged, f"{MANIFEST} is damaged: {error}"
    if folder.name.isdecimal() and int(folder.name) != step:
        return damaged, f"{MANIFEST} is of step {step}, but the folder is {folder.name}"
    names = [name for name in sizes if name.startswith(within)]
    problems = _of_sizes(folder, {name: sizes[name] for name in names})
    if checksums:
        same_size = [name for name in names if name not in problems]
        try:
            actual = _checksums(folder, same_size)
        except OSError as error:
            return damaged, f"{error.filename} cannot be read: {error.strerror}"
        problems |= {name: "does not match its checksum" for name in same_size if actual[name] != sums[name]}
    return (damaged, "; ".join(f"{name} {problem}" for name, problem in problems.items())) if problems else None


def _of_sizes(folder: Path, sizes: dict[str, int]) -> dict[str, str]:
    """The files that are missing or have another size, with a description."""
    found = {}
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file():
            found[name] = "is not a regular file" if os.path.lexists(path) else "is missing"
        elif (there := path.stat().st_size) != size:
            found[name] = f"has {there:,} bytes, not {size:,}"
    return found


def _has_first_format(folder: Path) -> bool:
    try:
        return bool(read_json(folder / PROGRESS)["format"] == 1)
    except _READ_ERRORS:
        return False


def _earlier(folder: Path) -> list[Path]:
    """The other checkpoints of the run with fewer steps, newest first."""
    if not folder.name.isdecimal():
        return []
    found = [path for path in folder.parent.iterdir() if path.name.isdecimal() and int(path.name) < int(folder.name)]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def _text(step: int, files: dict[str, Any]) -> str:
    """The manifest, with a checksum of itself."""
    body = {"format": FORMAT, "step": step, "files": files}
    own = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    return json.dumps({**body, "sha256": own}, indent=2) + "\n"


def _checksums(folder: Path, names: list[str]) -> dict[str, str]:
    """The SHA-256 of each file. Files are read in parallel, because hashing does not hold the interpreter's lock."""

    def checksum(name: str) -> str:
        with (folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(zip(names, pool.map(checksum, names), strict=True))
