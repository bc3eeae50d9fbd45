"""The recipes in a plugin's package: the TOML files in its folder ``recipes``."""

from __future__ import annotations

import importlib.resources
import re
import sys

from rlcore.plugins.discovery import Plugin
from rlcore.specs import RecipeSpec

_SUMMARY = re.compile(r'^summary *= *"(.*?)\.?"', re.MULTILINE)


def packaged_recipes(plugin: Plugin) -> list[RecipeSpec]:
    """``PLUGIN/NAME`` for each file ``recipes/NAME.toml`` beside an imported plugin module, the default one first."""
    module = plugin.module.partition(":")[0]
    package = module.rpartition(".")[0] or module
    if not hasattr(sys.modules.get(package), "__path__"):
        return []
    folder = importlib.resources.files(package) / "recipes"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml")) if folder.is_dir() else []
    found = []
    for name in sorted(names, key="default.toml".__ne__):
        summary = _SUMMARY.search((folder / name).read_bytes().decode(errors="replace"))
        found.append(
            RecipeSpec(
                id=f"{plugin.name}/{name.removesuffix('.toml')}",
                target=f"{package}:recipes/{name}",
                summary=f"{summary[1]}." if summary else "",
            )
        )
    return found


__all__ = ["packaged_recipes"]
