"""The commands of plugins in ``rlcore --help``, from a cache: to find them, all plugins have to be imported.

The cache is valid while the folders of installed packages, the modules of the plugins and the disabled plugins are the
same. It only saves time: if it cannot be read or written, the plugins are imported.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.escaping import printable

MOST_BYTES = 100_000


def plugin_commands() -> list[tuple[str, str]]:
    """Name and summary of each command that a plugin adds, sorted by name."""
    saved = _read()
    if saved is not None and saved["state"] == _state(list(saved["state"]["modules"])):
        rows = saved["commands"]
    else:
        from rlcore.plugins.registry import Registry

        registry = Registry()
        rows = sorted([spec.id, spec.summary] for spec in registry.specs("command"))
        found = (sys.modules.get(plugin.module) for plugin in registry.plugins.all())
        modules = [file for module in found if (file := getattr(module, "__file__", None))]
        _write({"state": _state(sorted(modules)), "commands": rows})
    return [(printable(name), printable(summary)) for name, summary in rows]


def _state(modules: list[str]) -> dict[str, Any]:
    """What the commands depend on: times of change in nanoseconds, by path."""
    return {
        "paths": {path: _changed(path) for path in sys.path if path},
        "modules": {path: _changed(path) for path in modules},
        "disabled": os.environ.get("RLCORE_DISABLE_PLUGINS", ""),
    }


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _file() -> Path:
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(parent) / "rlcore" / "commands.json"


def _read() -> dict[str, Any] | None:
    try:
        with _file().open("rb") as file:
            saved = json.loads(file.read(MOST_BYTES))
        whole = isinstance(saved["state"]["modules"], dict)
        return saved if whole and all(map(_is_row, saved["commands"])) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(isinstance(text, str) for text in row)


def _write(saved: dict[str, Any]) -> None:
    path = _file()
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(saved), encoding="utf-8")
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


__all__ = ["plugin_commands"]
