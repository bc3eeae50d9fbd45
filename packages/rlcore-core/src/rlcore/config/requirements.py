"""Check the distributions that a recipe requires, and report all missing ones at once."""

from __future__ import annotations

import re
from importlib import metadata

from rlcore.config.layers import Merged
from rlcore.errors import NotInstalledError
from rlcore.plugins.loading import pip_line


def check_requirements(merged: Merged) -> None:
    """Raise `NotInstalledError` naming every required distribution that is missing or too old."""
    required = merged.tree.get("requires", [])
    if not isinstance(required, list):
        return  # reported by the model
    missing = [(text, found) for text in required if isinstance(text, str) and (found := unmet(text))]
    if missing:
        raise NotInstalledError(
            f"this recipe requires {', '.join(text for text, _ in missing)}",
            found="; ".join(found for _, found in missing),
            where=merged.origin(("requires",)),
            fix=pip_line([text for text, _ in missing]),
        )


def unmet(requirement: str) -> str | None:
    """Why a requirement such as ``rl-plugin-x>=0.1`` is not met, or None when it is.

    Supports names and ``>=``/``==``/``<``/``<=``/``>``/``!=`` with plain version numbers; pip checks anything else.
    """
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*([^;]*)", requirement)
    if match is None:
        return f"{requirement!r} is not a valid requirement"
    name, _, clauses = match.groups()
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed"
    for clause in filter(None, (part.strip() for part in clauses.split(","))):
        comparison = re.fullmatch(r"(>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)", clause)
        if comparison and not _holds(_release(version), comparison[1], _release(comparison[2])):
            return f"{name} {version} is installed, {clause} is required"
    return None


def unmet_with_extras(requirement: str) -> str | None:
    """Like `unmet`, and also check the dependencies of the extras in ``name[extra]``."""
    if found := unmet(requirement):
        return found
    match = re.match(r"\s*([A-Za-z0-9._-]+)\s*\[([^\]]*)\]", requirement)
    if match is None:
        return None
    extras = {extra.strip() for extra in match[2].split(",")}
    for text in metadata.requires(match[1]) or ():
        wanted = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", text)
        if wanted and wanted[1] in extras and (found := unmet(text.partition(";")[0])):
            return found
    return None


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(\.[0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else [0]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _holds(found: tuple[int, ...], comparison: str, wanted: tuple[int, ...]) -> bool:
    return {
        ">=": found >= wanted,
        "<=": found <= wanted,
        "==": found == wanted,
        "!=": found != wanted,
        "<": found < wanted,
        ">": found > wanted,
    }[comparison]
