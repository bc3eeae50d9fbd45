"""Check what a resumed run cannot change, and what its checkpoint contains, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlcore.checks import failure, raise_failures
from rlcore.config.layers import DEFAULT, Layer, leaves
from rlcore.config.origins import KeyPath
from rlcore.config.resolved import Resolved
from rlcore.config.schema import RunConfig, Table
from rlcore.config.write import toml_value
from rlcore.errors import UserError
from rlcore.models.fingerprint import fingerprint_of_folder
from rlcore.models.folder import BUILTIN, local_folder
from rlcore.runs.directory import Resumption

MODEL = ("model", "path")


def check_unchanged(before: Layer, resolved: Resolved) -> None:
    """Reject changes of keys that only affect the start of a run; a table lists them in its attribute ``FIXED``.

    Args:
        before: the recorded configuration of the run
        resolved: the configuration with which it is resumed

    Raises:
        ProblemsError: lists every such change.
    """
    fixed, values, found = list(_fixed(resolved)), [_values(tree) for tree in (before.tree, resolved.tree())], []
    for path in sorted({*values[0], *values[1]}):
        old, new = (tree.get(path) for tree in values)
        if new == old or not any(path[: len(key)] == key for key in fixed):
            continue
        if resolved.origin(path) == DEFAULT or (path == MODEL and _same_model(old, new)):
            continue
        recorded = f"the value of this run is {toml_value(old)}" if old is not None else "it is not set in this run"
        reason, fix = f"a resumed run cannot change this key; {recorded}", "remove it, or start a new run"
        found.append(failure(".".join(path), reason, fix, value=toml_value(new), kind="refused"))
    raise_failures(resolved, found)


def resumed_lines(found: Resumption) -> Iterator[str]:
    """What a resumed run prints about its earlier records."""
    if found.changed:
        yield f"changed   {', '.join(found.changed)}: results may differ from an uninterrupted run"
    if found.gap is not None:
        yield f"gap       metrics.jsonl has {found.gap}"
    if found.superseded:
        yield f"moved     {found.superseded} to {found.superseded.folder}: later than the checkpoint, and not used"


def _fixed(resolved: Resolved) -> Iterator[KeyPath]:
    yield from (tuple(key.split(".")) for key in sorted(RunConfig.FIXED))
    for table, options in resolved.options.items():
        if isinstance(options, Table):
            yield from ((*table.split("."), key) for key in sorted(options.FIXED))


def _values(tree: Mapping[str, Any]) -> dict[KeyPath, Any]:
    """The values of all keys that have one."""
    return {path: value for path, value in leaves(tree) if value not in (None, "null", {})}


def _same_model(old: str | None, new: str | None) -> bool:
    """Whether two folders have the same weights. A folder that was moved or deleted cannot be compared."""
    if old is None or new is None or old.startswith(BUILTIN):
        return False
    before, now = _folder(old), _folder(new)
    if before is None or now is None:
        return now is not None
    try:
        return fingerprint_of_folder(before) == fingerprint_of_folder(now)
    except UserError:
        return False


def _folder(path: str) -> Path | None:
    try:
        return local_folder(path)
    except UserError:
        return None
