"""The recipes in a plugin's package: the TOML files in its folder ``recipes``."""

from __future__ import annotations

import importlib.resources
import re
import sys

from rlcore.plugins.discovery import Plugin
from rlcore.specs import RecipeSpec

_SUMMARY = re.compile(r'^summary *= *"(.*?)\.?"', re.MULTILINE)


def packaged_recipes(plugin: Plugin) -> list[RecipeSpec]:
    """``PLUGIN/NAME`` for each file ``recipes/NAME.toml`` beside an imported plugin module, sorted by name."""
    module = plugin.module.partition(":")[0]
    package = module.rpartition(".")[0] or module
    if not hasattr(sys.modules.get(package), "__path__"):
        return []
    folder = importlib.resources.files(package) / "recipes"
    found = []
    for file in sorted(folder.iterdir() if folder.is_dir() else (), key=lambda file: file.name):
        if not file.name.endswith(".toml") or not file.is_file():
            continue
        summary = _SUMMARY.search(file.read_bytes().decode(errors="replace"))
        found.append(
            RecipeSpec(
                id=f"{plugin.name}/{file.name.removesuffix('.toml')}",
                target=f"{package}:recipes/{file.name}",
                summary=f"{summary[1]}." if summary else "",
            )
        )
    return found


__all__ = ["packaged_recipes"]
