"""The results of code that ran in a sandbox, its limits, and what a backend can promise on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CodeStatus = Literal["ok", "error", "timeout", "killed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeResult:
    """The result of one cell of code. An infrastructure failure is not a result: it raises `SandboxFailure`.

    ``stdout``, ``stderr``, ``value`` and ``error`` have about `SandboxLimits.output_characters` characters at most: of
    a longer text, the beginning and the end are kept, with a marker in between. They may contain anything.
    """

    status: CodeStatus
    """``ok``: it ran. ``error``: it raised an exception or has a syntax error. ``timeout``: it reached a time limit.
    ``killed``: it ended its process, or reached the limit of memory."""
    stdout: str = ""
    stderr: str = ""
    value: str = ""
    """``repr`` of the last expression; empty if the cell does not end with one, or if its value is None."""
    error: str = ""
    """A short traceback, or the reason; empty if ``status`` is ``ok``."""
    images: tuple[bytes, ...] = ()
    """The shown images as PNG, in order."""
    image_names: tuple[str, ...] = ()
    """The names to which ``images`` are bound in the session, such as ``image_clue_1``; as many as images."""
    omitted_images: int = 0
    """The number of shown images that are not returned, because there were more than `SandboxLimits.images`."""
    reset: bool = False
    """Whether the session has lost its state and was restarted with its initial images. A sandbox that keeps no state
    sets it in each result."""
    seconds: float = 0.0
    """Wall time."""

    @property
    def ok(self) -> bool:
        """Whether the cell ran to its end."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The limits of a session, as in the table ``[sandbox]`` (`rlcore.config.schema.SandboxTable`)."""

    cell_s: float = 30.0
    """Wall time of a cell, in seconds."""
    cpu_s: float = 30.0
    """CPU time of a cell in seconds: of each of its processes, summed over threads."""
    memory_mb: int = 2048
    """Memory of a session, in MiB."""
    output_characters: int = 8192
    """Characters of each text of a `CodeResult`."""
    images: int = 8
    """Images that one cell returns."""
    image_pixels: int = 4_194_304
    """Pixels of an image; a larger one is reduced."""
    processes: int = 32
    """Processes and threads of a session."""
    files: int = 256
    """Open files of a process."""
    file_mb: int = 64
    """Size of a file, and of all files of a session together, in MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSupport:
    """Whether a backend can be used on this machine, and what it guarantees here."""

    guarantees: tuple[str, ...] = ()
    """What code cannot do, a short phrase each: ``no network``, ``files of the host are hidden``."""
    lacks: tuple[str, ...] = ()
    """What is not guaranteed here, a short phrase each: ``processes of the host are visible``."""
    reason: str = ""
    """Why the backend cannot be used; empty if it can."""
    fix: str = ""
    """How to make it usable, such as a command; empty if it can be used or nothing helps."""

    @property
    def available(self) -> bool:
        """Whether the backend can be used."""
        return not self.reason
