"""The hook implementations of rlcore-merge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import CommandSpec

if TYPE_CHECKING:
    import pluggy

    from rlcore_merge.specs import MergerSpec


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Register the hooks of this package."""
    from rlcore_merge import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


rlcore_specs = [
    CommandSpec(
        id="merge", target="rlcore_merge.cli:merge", summary="Merge a checkpoint into one Hugging Face folder."
    ),
]


@hookimpl
def rlcore_mergers() -> Iterable[MergerSpec]:
    """The built-in layouts."""
    from rlcore_merge.layouts import OWN

    yield from OWN


@hookimpl
def rlcore_checkpoint_layout(folder: Path) -> str | None:
    """The built-in layout of a folder or file, from the file names."""
    from rlcore_merge.layouts import own_layout

    return own_layout(folder)
