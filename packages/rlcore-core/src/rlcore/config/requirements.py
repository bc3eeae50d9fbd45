"""Check the distributions that a recipe requires, and report all missing ones at once."""

from __future__ import annotations

from importlib import metadata

from rlcore.config.merge import Merged
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
    """Why a requirement in pip syntax is not met, or None when it is. Its extras are not checked."""
    from packaging.requirements import InvalidRequirement, Requirement  # it costs 30 ms

    try:
        wanted = Requirement(requirement)
        version = metadata.version(wanted.name)
    except InvalidRequirement:
        return f"{requirement!r} is not a valid requirement"
    except metadata.PackageNotFoundError:
        return f"{wanted.name} is not installed"
    if wanted.specifier.contains(version, prereleases=True):
        return None
    return f"{wanted.name} {version} is installed, {wanted.specifier} is required"


def unmet_with_extras(requirement: str) -> str | None:
    """Like `unmet`, and also check the dependencies of the extras in ``name[extra]``."""
    if found := unmet(requirement):
        return found
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    for text in (metadata.requires(wanted.name) or ()) if wanted.extras else ():
        need = Requirement(text)
        applies = need.marker and any(need.marker.evaluate({"extra": extra}) for extra in wanted.extras)
        if applies and (found := unmet(text.partition(";")[0])):
            return found
    return None
