"""Load plugins in isolation, and call their hooks one implementation at a time.

There are three types of hooks. Register hooks return specs and are called when their kind is first used. Claim hooks
are called in turn until one returns a result. Observe hooks are called in the runs that name their plugin, see
`rlcore.plugins.observers`. Plugins are sorted by (distribution, name), so the order is deterministic. Claims call
rlcore's own plugins first, so installing a plugin does not change runs that do not use it.

``RLCORE_DISABLE_PLUGINS=a,b`` disables plugins or distributions; ``RLCORE_TRACE_PLUGINS=1`` prints every hook call.
"""

from __future__ import annotations

import importlib.resources
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pluggy

from rlcore import hookspecs
from rlcore.console.terminal import say
from rlcore.errors import PluginError, did_you_mean
from rlcore.plugin_calls import error_text, plugin_code, value_text
from rlcore.plugins.discovery import HOSTS, Plugin, State, discover
from rlcore.plugins.loading import describe, import_plugin, pip_line
from rlcore.specs import RecipeSpec, Spec

log = logging.getLogger("rlcore.plugins")
_SUMMARY = re.compile(r'^summary *= *"(.*?)\.?"', re.MULTILINE)

HOOK_OWNERS: Mapping[str, str] = {
    "rlcore_engines": "rlcore-rollout",
    "rlcore_samplers": "rlcore-rollout",
    "rlcore_tool_parsers": "rlcore-rollout",
    "rlcore_chat_formats": "rlcore-rollout",
    "rlcore_chat_format": "rlcore-rollout",
    "rlcore_trainers": "rlcore-trainer",
    "rlcore_algorithms": "rlcore-trainer",
    "rlcore_strategies": "rlcore-trainer",
    "rlcore_policies": "rlcore-trainer",
    "rlcore_reward_terms": "rl-plugin-world-model",
    "rlcore_action_models": "rlcore-control",
    "rlcore_mergers": "rlcore-merge",
    "rlcore_checkpoint_layout": "rlcore-merge",
}
"""Hooks of optional packages. Without the package, such a hook is inactive, and its plugin is not broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A spec and the plugin that registered it."""

    spec: Spec
    plugin: Plugin


class Plugins:
    """The plugins of this process. They are imported on first use, not by the constructor."""

    def __init__(self) -> None:
        self._plugins = {(plugin.distribution, plugin.name): plugin for plugin in discover()}
        self._manager: pluggy.PluginManager | None = None
        self._offers: dict[str, list[Offer]] = {}
        self._silenced: set[tuple[str, str]] = set()

    def all(self) -> list[Plugin]:
        """All plugins in their current state; plugins that are not loaded yet are ``found``."""
        return list(self._plugins.values())

    def load(self) -> list[Plugin]:
        """Import all usable plugins, and return all plugins in their new states."""
        _ = self.manager
        return self.all()

    @property
    def manager(self) -> pluggy.PluginManager:
        """The pluggy manager, with all usable plugins registered."""
        if self._manager is None:
            self._manager = pluggy.PluginManager("rlcore")
            self._manager.add_hookspecs(hookspecs)
            self._register_all(self._manager)
        return self._manager

    def offers(self, hook: str, expected: type[Spec] = Spec) -> list[Offer]:
        """The specs from a register hook, which is called once, and for recipes those in the plugins' packages.

        A plugin whose hook raises, or returns objects of another type, becomes ``broken`` and contributes no specs.
        """
        if hook not in self._offers:
            found = []
            for plugin, implementation in self._implementations(hook):
                try:
                    with plugin_code(f"{hook} of the plugin {plugin.named}"):
                        specs = checked_specs(self.call(plugin.name, implementation, {}), expected)
                except Exception as error:
                    self._break(plugin, f"{hook} failed: {describe(error)}", fix=getattr(error, "fix", None))
                    continue
                found += [Offer(spec=spec, plugin=plugin) for spec in specs]
            if hook == "rlcore_recipes":
                registered = {offer.spec.id for offer in found}
                for plugin in [plugin for plugin in self.all() if plugin.state is State.OK]:
                    try:
                        recipes = packaged_recipes(plugin)
                    except OSError as error:
                        self._break(plugin, f"its recipes cannot be read: {describe(error)}")
                        continue
                    found += [Offer(spec=spec, plugin=plugin) for spec in recipes if spec.id not in registered]
            self._offers[hook] = found
        return self._offers[hook]

    def claim(
        self,
        hook: str,
        check: Callable[[Any], None] = lambda answer: None,
        failed: Callable[[str], None] = lambda problem: None,
        **arguments: Any,
    ) -> Any:
        """The first result of a claim hook, or None. A plugin that raises is skipped and logged once.

        So is a plugin whose result ``check`` rejects with an exception. ``failed`` receives each failure.
        """
        return self._claimed(hook, check, arguments, failed)[1]

    def claimed_offer(self, kind: str, id: str, expected: type[Spec]) -> Offer | None:
        """The spec that a plugin claims for an id of ``rlcore_component``, or None. Errors are as in `claim`."""

        def check(answer: Any) -> None:
            (spec,) = checked_specs([answer], expected)
            if spec.id != id:
                raise ValueError(f"claimed {id!r} with a spec of {spec.id!r}")

        plugin, spec = self._claimed("rlcore_component", check, {"kind": kind, "id": id})
        return None if plugin is None else Offer(spec=spec, plugin=plugin)

    def _claimed(
        self,
        hook: str,
        check: Callable[[Any], None],
        arguments: Mapping[str, Any],
        failed: Callable[[str], None] = lambda problem: None,
    ) -> tuple[Plugin | None, Any]:
        """The first result of a claim hook, with its plugin."""
        for plugin, implementation in reversed(self._implementations(hook)):
            try:
                with plugin_code(f"{hook} of the plugin {plugin.named}"):
                    answer = self.call(plugin.name, implementation, arguments)
                    if answer is not None:
                        check(answer)
            except Exception as error:
                failed(f"plugin {plugin.named}: {describe(error)}")
                if (plugin.name, hook) not in self._silenced:
                    self._silenced.add((plugin.name, hook))
                    log.error("plugin %s: skipping %s, which failed: %s", plugin.named, hook, describe(error))
                continue
            if answer is not None:
                return plugin, answer
        return None, None

    def hooks_of(self, plugin: Plugin, names: Sequence[str]) -> dict[str, pluggy.HookImpl]:
        """The plugin's implementations of these hooks."""
        found = ((name, *each) for name in names for each in self._implementations(name))
        return {name: implementation for name, owner, implementation in found if _key(owner) == _key(plugin)}

    def _implementations(self, hook: str) -> list[tuple[Plugin, pluggy.HookImpl]]:
        caller = getattr(self.manager.hook, hook, None)
        if caller is None or not caller.has_spec():
            return []
        plugins = {_key(plugin): plugin for plugin in self._plugins.values()}
        return [(plugins[found.plugin_name], found) for found in caller.get_hookimpls()]

    def call(self, name: str, implementation: pluggy.HookImpl, arguments: Mapping[str, Any]) -> Any:
        """The answer of a hook to the arguments that it declares. ``name`` is that of its plugin in the trace."""
        if os.environ.get("RLCORE_TRACE_PLUGINS") != "1":
            return _plain(implementation.function(*[arguments[name] for name in implementation.argnames]))
        call = f"{implementation.function.__name__}({', '.join(f'{k}={_short(v)}' for k, v in arguments.items())})"
        try:
            answer = _plain(implementation.function(*[arguments[name] for name in implementation.argnames]))
            answer = list(answer) if inspect.isgenerator(answer) else answer
        except BaseException as error:
            say(f"rlcore plugins: {name} {call} raised {error_text(error)}", err=True)
            raise
        say(f"rlcore plugins: {name} {call} -> {_short(answer)}", err=True)
        return answer

    def _register_all(self, manager: pluggy.PluginManager) -> None:
        modules: dict[tuple[str, str], object] = {}
        for key, plugin in self._plugins.items():
            if plugin.usable:
                try:
                    modules[key], complaints = import_plugin(plugin)
                    self._plugins[key] = replace(plugin, complaints=complaints)
                except PluginError as error:
                    self._break(plugin, error.message, fix=error.fix)
        # Before any registration, so that an error is attributed to the right plugin.
        for key, module in modules.items():
            plugin = self._plugins[key]
            try:
                with plugin_code(f"rlcore_addhooks of the plugin {plugin.named}"):
                    if "rlcore_addhooks" in _hook_names(manager, module):
                        getattr(module, "rlcore_addhooks")(manager)  # noqa: B009 # it may be any object
            except Exception as error:
                self._break(plugin, f"rlcore_addhooks failed: {describe(error)}", fix=getattr(error, "fix", None))
        for key in sorted(modules, key=lambda key: (key[0] in HOSTS, key)):
            if self._plugins[key].usable:
                self._register(manager, self._plugins[key], modules[key])

    def _register(self, manager: pluggy.PluginManager, plugin: Plugin, module: object) -> None:
        known = {name for name in {*dir(hookspecs), *vars(manager.hook)} if name.startswith("rlcore_")}
        known |= set(HOOK_OWNERS)
        hooks, notes = _hook_names(manager, module), []
        for name in _unmarked(module):
            if name in known:
                self._break(plugin, f"{name} is not marked as a hook", fix=f"decorate {name} with @rlcore.hookimpl")
                return
        for name in hooks:
            if name not in known:
                near = did_you_mean(name, known)
                self._break(plugin, f"unknown hook {name!r}" + (f"; {near}" if near else ""))
                return
            caller = getattr(manager.hook, name, None)
            if caller is None or not caller.has_spec():
                notes.append(self._inactive(name))
        problem = ""
        try:
            manager.register(module, name=_key(plugin))
        except Exception as error:  # the first line is the plugin's name
            problem = "; ".join(str(error).splitlines()[1:]) or describe(error)
        if any(found.hookwrapper or found.wrapper for found in _implementations_of(manager, module)):
            problem = "hook wrappers are not supported"
        if problem:
            manager.unregister(name=_key(plugin))
            self._break(plugin, problem)
            return
        checked = replace(plugin, state=State.OK, hooks=tuple(hooks), notes=tuple(notes))
        self._plugins[plugin.distribution, plugin.name] = checked

    def _inactive(self, hook: str) -> str:
        owner = HOOK_OWNERS[hook]
        state = next((plugin.state for plugin in self._plugins.values() if plugin.distribution == owner), None)
        if state is None:
            return f"{hook} is inactive: needs {owner} ({pip_line([owner])})"
        return f"{hook} is inactive: needs {owner}, which is {state}"

    def _break(self, plugin: Plugin, problem: str, fix: str | None = None) -> None:
        fix = fix or f"pip install --upgrade {plugin.distribution}, or RLCORE_DISABLE_PLUGINS={plugin.name}"
        self._plugins[plugin.distribution, plugin.name] = replace(plugin, state=State.BROKEN, problem=problem, fix=fix)


def checked_specs(answer: Any, expected: type[Spec]) -> list[Spec]:
    """The specs that a register hook returned; None is no spec. Raises `TypeError` for anything else."""
    specs = []
    for spec in () if answer is None else answer:
        if not isinstance(spec, expected):
            raise TypeError(f"returned {value_text(spec)}, expected {expected.__name__} objects")
        if not isinstance(spec.id, str) or not spec.id:
            raise TypeError(f"returned a {type(spec).__name__} whose id is {value_text(spec.id)}, expected a text")
        specs.append(spec)
    return specs


def packaged_recipes(plugin: Plugin) -> list[RecipeSpec]:
    """``PLUGIN/NAME`` for each file ``recipes/NAME.toml`` beside an imported plugin module, sorted by name."""
    module = plugin.module.partition(":")[0]
    package = module.rpartition(".")[0] or module
    if not hasattr(sys.modules.get(package), "__path__"):
        return []
    folder = importlib.resources.files(package) / "recipes"
    found = []
    for file in sorted(folder.iterdir() if folder.is_dir() else (), key=lambda file: file.name):
        if file.name.endswith(".toml") and file.is_file():
            id, target = f"{plugin.name}/{file.name.removesuffix('.toml')}", f"{package}:recipes/{file.name}"
            summary = _SUMMARY.search(file.read_bytes().decode(errors="replace"))
            found.append(RecipeSpec(id=id, target=target, summary=f"{summary[1]}." if summary else ""))
    return found


def _key(plugin: Plugin) -> str:
    return f"{plugin.distribution}:{plugin.name}"


def _hook_names(manager: pluggy.PluginManager, module: object) -> list[str]:
    """Names of the hooks that ``module`` implements, in definition order."""
    found = []
    for name in vars(module) if isinstance(module, ModuleType) else dir(module):
        options = manager.parse_hookimpl_opts(module, name)
        if options is not None:
            found.append(options.get("specname") or name)
    return found


def _unmarked(module: object) -> list[str]:
    """Functions defined in the module that are named like hooks but lack the decorator."""
    return [
        name
        for name, value in (vars(module) if isinstance(module, ModuleType) else {}).items()
        if name.startswith("rlcore_")
        and callable(value)
        and getattr(value, "__module__", None) == getattr(module, "__name__", "")
        and not hasattr(value, "rlcore_impl")
        and not hasattr(value, "rlcore_spec")
    ]


def _implementations_of(manager: pluggy.PluginManager, module: object) -> list[pluggy.HookImpl]:
    callers = manager.get_hookcallers(module) or []
    return [found for caller in callers for found in caller.get_hookimpls() if found.plugin is module]


def _plain(answer: Any) -> Any:
    """The answer of a hook, which must not be ``async``."""
    if inspect.iscoroutine(answer):
        answer.close()
        raise TypeError("a hook must be a plain function, it is async")
    return answer


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(item.id if isinstance(item, Spec) else value_text(item) for item in value)}]"
    return value_text(value)
