"""Discover installed plugins from metadata, without importing them."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

GROUP = "rlcore.plugins"
DISABLING = "RLCORE_DISABLE_PLUGINS"
"""Environment variable: names of plugins or distributions, separated by commas."""
HOSTS = (
    *("rlcore-core", "rlcore-models", "rlcore-rollout", "rlcore-trainer", "rlcore-sandbox", "rlcore-merge"),
    *("rlcore-control", "rlcore-compat"),
)
"""rlcore's own distributions. Other plugins cannot take over their names and ids."""
CHECKED = (*HOSTS, "rlcore")
"""Distributions whose versions are checked against a plugin's requirements before it is imported."""


class State(StrEnum):
    """State of an installed plugin."""

    FOUND = "found"
    """Found in metadata, not imported yet."""
    OK = "ok"
    BROKEN = "broken"
    """Its import or one of its hooks raised an exception, or it implements an unknown hook."""
    CONFLICT = "conflict"
    """Another distribution has a plugin with the same name; neither is loaded."""
    INCOMPATIBLE = "incompatible"
    """It requires a different version of rlcore."""
    DISABLED = "disabled"
    """Listed in ``RLCORE_DISABLE_PLUGINS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """A problem of a plugin that still works, and its fix."""

    problem: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One entry point in the group ``rlcore.plugins``."""

    name: str
    distribution: str
    version: str
    module: str
    """``module`` or ``module:attribute`` with the hooks."""
    state: State = State.FOUND
    problem: str = ""
    """One sentence; empty when there is no problem."""
    fix: str = ""
    """How to fix the problem."""
    notes: tuple[str, ...] = ()
    """Inactive hooks, with the reason."""
    complaints: tuple[Complaint, ...] = ()
    """Side effects of its import; known once it is loaded."""
    hooks: tuple[str, ...] = ()
    """Hooks that it implements; known once it is loaded."""

    @property
    def origin(self) -> str:
        """``distribution version``."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def named(self) -> str:
        """``name (distribution version)``, for messages."""
        return f"{self.name} ({self.origin})"

    @property
    def usable(self) -> bool:
        """Whether the plugin has no known problem."""
        return self.state in (State.FOUND, State.OK)


def discover() -> list[Plugin]:
    """All installed plugins, sorted by (distribution, name), with the states known from metadata."""
    plugins = sorted(_entries(), key=lambda found: (found[0].distribution, found[0].name))
    disabled = {canonical(name) for name in os.environ.get(DISABLING, "").split(",") if name.strip()}
    same_name: dict[str, list[Plugin]] = {}
    for plugin, _ in plugins:
        if not {canonical(plugin.name), canonical(plugin.distribution)} & disabled:
            same_name.setdefault(canonical(plugin.name), []).append(plugin)
    checked = []
    for plugin, requirements in plugins:
        rivals = same_name.get(canonical(plugin.name), [])
        if plugin not in rivals:
            problem, fix = f"listed in {DISABLING}", f"remove {plugin.name} from {DISABLING}"
            plugin = replace(plugin, state=State.DISABLED, problem=problem, fix=fix)
        elif len(rivals) > 1 and not is_host(plugin):
            own, choice = any(map(is_host, rivals)), plugin.distribution
            used = f"used by {' and '.join(rival.origin for rival in rivals)}; neither is loaded"
            plugin = replace(
                plugin,
                state=State.CONFLICT,
                problem=f"the name {plugin.name!r} is {'reserved by rlcore' if own else used}",
                fix=f"remove {'this one' if own else 'one of them'}: pip uninstall {choice}, or {DISABLING}={choice}",
            )
        elif plugin.usable:
            plugin = _check_requirements(plugin, requirements)
        checked.append(plugin)
    return checked


def is_host(plugin: Plugin) -> bool:
    """Whether a plugin is one of rlcore's own packages."""
    return canonical(plugin.distribution) in HOSTS


def canonical(name: str) -> str:
    """A normalised name, as package indexes compare them: lower case, ``-`` for any run of ``-_.``."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _entries() -> Iterator[tuple[Plugin, list[str]]]:
    """Plugins and the requirements of their distributions. A malformed distribution affects no other."""
    seen = set()
    for distribution in importlib.metadata.distributions():
        entries, problem = [], ""
        try:
            if GROUP not in (distribution.read_text("entry_points.txt") or ""):
                continue
            entries = list(distribution.entry_points.select(group=GROUP))
        except Exception as error:  # it may be a plugin, so report it
            problem = f"its entry_points.txt cannot be read: {error}"
        try:
            name, version = distribution.metadata["Name"] or "unknown", distribution.version or ""
        except Exception:
            name, version = "unknown", ""
        if canonical(name) in seen:  # shadowed by an earlier entry of sys.path
            continue
        seen.add(canonical(name))
        for entry in entries:
            plugin = Plugin(name=entry.name, distribution=name, version=version, module=entry.value)
            yield plugin, distribution.requires or []
        if problem:
            broken = Plugin(name=name, distribution=name, version=version, module="", state=State.BROKEN)
            yield replace(broken, problem=problem, fix=f"pip install --force-reinstall {name}"), []


def _check_requirements(plugin: Plugin, requirements: list[str]) -> Plugin:
    """Mark the plugin ``incompatible`` when it excludes an installed version of rlcore."""
    for text in requirements:
        match = re.match(r"[A-Za-z0-9._-]+", text)
        host = canonical(match.group()) if match else ""
        try:
            installed = importlib.metadata.version(host) if host in CHECKED else None
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed is None or text == f"{host}=={installed}":
            continue
        # Imported here because it costs 30 ms.
        from packaging.requirements import InvalidRequirement, Requirement

        problem = ""
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            problem = f"invalid requirement {text!r}: {error}".splitlines()[0]
            fix = f"report this to the author of {plugin.distribution}"
        else:
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if applies and not requirement.specifier.contains(installed, prereleases=True):
                problem = f"{plugin.origin} requires {host}{requirement.specifier}, found {installed}"
                fix = f"pip install --upgrade {plugin.distribution} '{host}{requirement.specifier}'"
        if problem:
            return replace(plugin, state=State.INCOMPATIBLE, problem=problem, fix=fix)
    return plugin
