"""The observers of a run: the plugins and classes that its configuration names."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

from rlcore import hookspecs
from rlcore.errors import PluginError, did_you_mean
from rlcore.plugin_calls import plugin_code, value_text
from rlcore.plugins.loading import describe, load_attribute
from rlcore.types.checking import flaw_in_numbers

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry

log = logging.getLogger("rlcore.plugins")

EVENTS = (
    "rlcore_run_started",
    "rlcore_rollouts_scored",
    "rlcore_step_finished",
    "rlcore_checkpoint_saved",
    "rlcore_run_finished",
)
MEASURING = ("rlcore_rollouts_scored", "rlcore_step_finished")
"""Hooks whose results are metrics."""


Hooks = Mapping[str, pluggy.HookImpl]


class Observers:
    """Notifies the observers of one run. One that raises is logged once and then skipped."""

    def __init__(self, registry: Registry, ids: Sequence[str] = ()) -> None:
        self._registry = registry
        self._observers = [_observer(registry, id) for id in ids]

    def tell(self, hook: str, **arguments: Any) -> dict[str, float]:
        """Call a hook of every observer, and return their metrics. Exceptions of observers are logged, not raised."""
        metrics: dict[str, float] = {}
        for observer in list(self._observers):
            named, hooks = observer
            own = {name: dict(value) if isinstance(value, dict) else value for name, value in arguments.items()}
            try:
                if hook in hooks:
                    with plugin_code(f"{hook} of the {named}"):
                        metrics |= _metrics(hook, self._registry.plugins.call(named, hooks[hook], own))
            except Exception as error:
                self._observers.remove(observer)
                log.error("%s: %s failed and is disabled for this run: %s", named, hook, describe(error))
        return metrics


def _metrics(hook: str, answer: Any) -> dict[str, float]:
    if answer is None or hook not in MEASURING:
        return {}
    if flaw := flaw_in_numbers(answer, "metrics"):
        raise TypeError(f"returned {flaw}")
    return {name: float(value) for name, value in answer.items()}


def check_observer(registry: Registry, id: str) -> None:
    """Reject an id that is neither a plugin with observe hooks nor the import path of a class with them.

    Raises:
        PluginError: with the reason.
    """
    if ":" in id:
        _checked_class(id)
    else:
        _plugin(registry, id)


def _observer(registry: Registry, id: str) -> tuple[str, Hooks]:
    """The observer in messages, such as ``plugin acme (acme-rl 1.2)``, and its hooks."""
    if ":" not in id:
        return _plugin(registry, id)
    from rlcore.plugins.registry import make_component  # the registry imports the discovery of plugins

    return f"observer {id!r}", _hooks_of(id, make_component(f"observer {id!r}", _checked_class(id), None))


def _plugin(registry: Registry, name: str) -> tuple[str, Hooks]:
    plugin = registry.plugin(name)
    hooks = registry.plugins.hooks_of(plugin, EVENTS)
    if not hooks:
        raise PluginError(
            f"the plugin {plugin.name!r} has no observers",
            found=f"its hooks are {', '.join(plugin.hooks)}" if plugin.hooks else "it has no hooks",
            where=plugin.origin,
            fix="remove it from observers: its other components are selected by their ids",
        )
    return f"plugin {plugin.named}", hooks


def _checked_class(id: str) -> type:
    found = load_attribute(id, what=f"observer {id!r}")
    if not isinstance(found, type):
        raise PluginError(f"observer {id!r} must be a class", found=value_text(found), fix="name a class")
    _hooks_of(id, found)
    return found


def _hooks_of(id: str, observer: object) -> Hooks:
    """The hooks of a class or an object, whose names and parameters are checked."""
    manager = pluggy.PluginManager("rlcore")
    manager.add_hookspecs(hookspecs)
    what = f"observer {id!r}"
    for name in dir(observer):
        if name.startswith("rlcore_") and not hasattr(getattr(observer, name), "rlcore_impl"):
            raise PluginError(f"{what}: {name} is not marked as a hook", fix=f"decorate {name} with @rlcore.hookimpl")
    try:
        manager.register(observer)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        unknown = str(error).partition("unknown hook '")[2].partition("'")[0]
        near = did_you_mean(unknown, EVENTS) if unknown else None
        found = f"unknown hook {unknown!r}" if unknown else " ".join(str(error).splitlines()[1:])
        raise PluginError(f"{what} has an invalid hook", found=found, fix=near or f"edit {id}") from error
    hooks = {caller.name: caller.get_hookimpls()[0] for caller in manager.get_hookcallers(observer) or []}
    if not set(hooks) & set(EVENTS):
        raise PluginError(f"{what} has no observe hooks", fix=f"add a method such as {EVENTS[2]}(self, step, metrics)")
    return hooks
