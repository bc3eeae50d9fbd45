"""The confinement of a session, applied in its process before the first cell. Standard library and ctypes only."""

from __future__ import annotations

from typing import Any


def prepare(backend: str, limits: Any) -> Any:
    """Prepare the confinement once, in the zygote, before anything runs in it."""
    return None


def enter(prepared: Any, scratch: str) -> None:
    """Confine this process. ``scratch`` is an empty folder, the only one in which it may write."""
