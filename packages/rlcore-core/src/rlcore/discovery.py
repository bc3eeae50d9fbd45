"""Which plugins are installed, read from metadata alone: nothing of a plugin is imported here."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

GROUP = "rlcore.plugins"
HOSTS = ("rlcore-core", "rlcore-rollout", "rlcore-trainer", "rlcore-merge")
"""The distributions that bring hooks. Their names and ids are theirs, whatever else is installed."""
CHECKED = (*HOSTS, "rlcore")
"""The distributions whose versions a plugin's requirements are compared with before it is imported."""


class State(StrEnum):
    """What became of an installed plugin."""

    FOUND = "found"
    """Listed from metadata, not imported yet."""
    OK = "ok"
    BROKEN = "broken"
    """Its import or one of its hooks raised, or it has a hook that does not exist."""
    CONFLICT = "conflict"
    """Another distribution offers a plugin of the same name; neither is loaded."""
    INCOMPATIBLE = "incompatible"
    """It requires another version of rlcore."""
    DISABLED = "disabled"
    """Named in ``RLCORE_DISABLE_PLUGINS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What is wrong with a plugin that works all the same, and what mends it."""

    problem: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One entry of the group ``rlcore.plugins``."""

    name: str
    distribution: str
    version: str
    module: str
    """``module`` or ``module:attribute`` that holds the hooks."""
    state: State = State.FOUND
    problem: str = ""
    """One sentence; empty when nothing is wrong."""
    fix: str = ""
    """What mends it."""
    notes: tuple[str, ...] = ()
    """Hooks that are inactive, and why."""
    complaints: tuple[Complaint, ...] = ()
    """What its import did that it should not; known once it is loaded."""
    hooks: tuple[str, ...] = ()
    """Hooks that it implements; known once it is loaded."""

    @property
    def origin(self) -> str:
        """``distribution version``."""
        return f"{self.distribution} {self.version}".strip()

    @property
    def usable(self) -> bool:
        """Whether nothing is known against it."""
        return self.state in (State.FOUND, State.OK)


def discover() -> list[Plugin]:
    """Every installed plugin, sorted by (distribution, name), with the states that metadata can tell."""
    plugins = sorted(_entries(), key=lambda found: (found[0].distribution, found[0].name))
    disabled = {canonical(name) for name in os.environ.get("RLCORE_DISABLE_PLUGINS", "").split(",") if name.strip()}

    def is_disabled(plugin: Plugin) -> bool:
        return bool({canonical(plugin.name), canonical(plugin.distribution)} & disabled)

    owners = Counter(canonical(plugin.name) for plugin, _ in plugins if not is_disabled(plugin))
    judged = []
    for plugin, requirements in plugins:
        if is_disabled(plugin):
            plugin = replace(
                plugin,
                state=State.DISABLED,
                problem="named in RLCORE_DISABLE_PLUGINS",
                fix=f"take {plugin.name} out of RLCORE_DISABLE_PLUGINS",
            )
        elif owners[canonical(plugin.name)] > 1 and not is_host(plugin):
            others = [other for other, _ in plugins if canonical(other.name) == canonical(plugin.name)]
            origins = " and ".join(other.origin for other in others if not is_disabled(other))
            own = any(is_host(other) for other in others)
            choice = plugin.distribution
            plugin = replace(
                plugin,
                state=State.CONFLICT,
                problem=f"the name {plugin.name!r} is "
                + ("rlcore's own" if own else f"offered by {origins}; neither is loaded"),
                fix=f"{'' if own else 'keep one: '}pip uninstall {choice}, or RLCORE_DISABLE_PLUGINS={choice}, "
                "drops this one",
            )
        elif plugin.usable:
            plugin = _judge_requirements(plugin, requirements)
        judged.append(plugin)
    return judged


def is_host(plugin: Plugin) -> bool:
    """Whether a plugin is one of rlcore's own packages."""
    return canonical(plugin.distribution) in HOSTS


def canonical(name: str) -> str:
    """A name as package indexes compare it: lower case, one ``-`` for any run of ``-_.``."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _entries() -> Iterator[tuple[Plugin, list[str]]]:
    """Plugins and the requirements of their distributions. A malformed distribution costs only itself."""
    seen = set()
    for distribution in importlib.metadata.distributions():
        try:
            text, unreadable = distribution.read_text("entry_points.txt") or "", None
        except UnicodeDecodeError as error:
            text, unreadable = GROUP, error  # whose it is cannot be known, so it is told
        if GROUP not in text:
            continue
        try:
            name, version = distribution.metadata["Name"] or "unknown", distribution.version or ""
        except Exception:
            name, version = "unknown", ""
        if canonical(name) in seen:  # the same distribution further down sys.path, which imports never reach
            continue
        seen.add(canonical(name))
        try:
            if unreadable is not None:
                raise unreadable
            for entry in distribution.entry_points.select(group=GROUP):
                plugin = Plugin(name=entry.name, distribution=name, version=version, module=entry.value)
                yield plugin, distribution.requires or []
        except Exception as error:
            broken = Plugin(
                name=name,
                distribution=name,
                version=version,
                module="",
                state=State.BROKEN,
                problem=f"its entry_points.txt cannot be read: {error}",
                fix=f"pip install --force-reinstall {name}",
            )
            yield broken, []


def _judge_requirements(plugin: Plugin, requirements: list[str]) -> Plugin:
    """``incompatible`` when an installed host is of a version that the plugin's distribution excludes."""
    for text in requirements:
        match = re.match(r"[A-Za-z0-9._-]+", text)
        host = canonical(match.group()) if match else ""
        if host not in CHECKED:
            continue
        try:
            installed = importlib.metadata.version(host)
        except importlib.metadata.PackageNotFoundError:
            continue
        if text == f"{host}=={installed}":
            continue
        # Imported here because it costs 30 ms.
        from packaging.requirements import InvalidRequirement, Requirement

        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            problem = f"its requirement {text!r} cannot be read: {error}".splitlines()[0]
            fix = f"ask the author of {plugin.distribution} to mend it"
            return replace(plugin, state=State.INCOMPATIBLE, problem=problem, fix=fix)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            return replace(
                plugin,
                state=State.INCOMPATIBLE,
                problem=f"{plugin.origin} wants {host}{requirement.specifier}, found {installed}",
                fix=f"pip install --upgrade {plugin.distribution} '{host}{requirement.specifier}'",
            )
    return plugin
