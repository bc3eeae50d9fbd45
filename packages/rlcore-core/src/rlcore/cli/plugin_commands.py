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

import click

from rlcore.console.escaping import printable


def plugin_commands() -> list[tuple[str, str]]:
    """Name and summary of each command that a plugin adds, sorted by name."""
    parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(parent) / "rlcore" / "commands.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        saved = json.loads(cache.read_text(encoding="utf-8"))
        if saved["state"] == _state(list(saved["state"]["modules"])):
            return [(printable(name), printable(summary)) for name, summary in saved["commands"]]
    from rlcore.plugins.registry import Registry

    registry = Registry()
    rows = sorted((spec.id, spec.summary) for spec in registry.specs("command"))
    found = (sys.modules.get(plugin.module) for plugin in registry.plugins.all())
    modules = [file for module in found if (file := getattr(module, "__file__", None))]
    partial = cache.with_name(f".{cache.name}.{os.getpid()}")
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({"state": _state(sorted(modules)), "commands": rows}), encoding="utf-8")
        partial.replace(cache)
    return [(printable(name), printable(summary)) for name, summary in rows]


def plugin_command(name: str) -> click.Command | None:
    """A command of a plugin, imported; None if no plugin has it."""
    from rlcore.plugins.registry import Registry

    registry = Registry()
    known = [spec.id for spec in registry.specs("command")]
    return registry.load("command", name) if name in known else None


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
