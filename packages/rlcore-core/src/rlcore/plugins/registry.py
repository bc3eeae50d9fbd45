"""Look up components by id: spec, plugin and imported target."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rlcore import specs as spec_types
from rlcore.atomic_files import FREE_DISK_SPACE, is_full_disk
from rlcore.errors import EnvironmentFailure, PluginError, RlcoreError, UserError, WriteError, did_you_mean
from rlcore.plugin_calls import error_text, plugin_code, value_text
from rlcore.plugins.discovery import Plugin, State, canonical, is_host
from rlcore.plugins.forms import disagreement, mistake_in, wrong_fields
from rlcore.plugins.installed import HOOK_OWNERS, Offer, Plugins
from rlcore.plugins.loading import load_attribute, pip_line, resource, source_line
from rlcore.specs import CONTRACT_VERSION, AlgorithmSpec, EnvironmentSpec, Spec

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["load_attribute"]

Value = TypeVar("Value")
Specified = TypeVar("Specified", bound=Spec)


class Kind(NamedTuple):
    """A kind of component: the hook that registers it and the type of its specs."""

    hook: str
    spec: type[Spec]


_SPECS: Mapping[str, type[Spec]] = {
    "environment": spec_types.EnvironmentSpec,
    "reward": spec_types.RewardSpec,
    "tool": spec_types.ToolSpec,
    "dataset": spec_types.DatasetSpec,
    "recipe": spec_types.RecipeSpec,
    "tracker": spec_types.TrackerSpec,
    "command": spec_types.CommandSpec,
    "check": spec_types.CheckSpec,
    "diagnosis": spec_types.DiagnosisSpec,
    "config_adapter": spec_types.ConfigAdapterSpec,
    "engine": spec_types.EngineSpec,
    "sampler": spec_types.SamplerSpec,
    "tool_parser": spec_types.ToolParserSpec,
    "sandbox": spec_types.SandboxSpec,
    "chat_format": spec_types.ChatFormatSpec,
    "trainer": spec_types.TrainerSpec,
    "advantage": AlgorithmSpec,
    "loss": AlgorithmSpec,
    "preference_loss": AlgorithmSpec,
    "strategy": spec_types.StrategySpec,
    "policy": spec_types.PolicySpec,
    "action_model": spec_types.ActionModelSpec,
    "reward_term": Spec,
    "model": spec_types.ModelBuilderSpec,
}
KINDS: Mapping[str, Kind] = {kind: Kind(spec.hook, spec) for kind, spec in _SPECS.items()}

CLAIMED = ("environment", "dataset")
"""Kinds whose ids plugins may claim without registering them (``rlcore_component``)."""

SPEC_ATTRIBUTES = frozenset(
    {"blocking", "max_concurrency", "scope", "minimum", "maximum", "rewards_silence", "trains", "speaks"}
    | {"tables", "needs_environment", "quantizes", "shards", "runs_code", "action"}
    | {"key", "fix", "guide"}
)
"""Spec fields that a component given as an import path defines as attributes."""
HOSTED_ATTRIBUTES = frozenset({"action", "blocking", "max_concurrency", "modalities", "runs_code"})
"""Those that are read from the class of an environment in another interpreter."""
HOSTED_IMPORT_S = 120.0
"""Time for the imports of a simulator."""

KNOWN_DISTRIBUTIONS: Mapping[str, str] = {
    "harness": "rlcore-harness",
    "miniwob": "rl-plugin-miniwob",
    **dict.fromkeys(("openenv", "openenv-images", "nemo-gym"), "rl-plugin-openenv"),
    "reasoning-gym": "rl-plugin-reasoning-gym",
    "gsm8k-tools": "rl-plugin-gsm8k-tools",
    "calculator": "rl-plugin-gsm8k-tools",
    "gem": "rl-plugin-gem",
    "textarena": "rl-plugin-textarena",
    "trl-environment": "rlcore-compat",
    "verifiers": "rl-plugin-verifiers",
    "gymnasium": "rl-plugin-gymnasium",
    "llm-judge": "rl-plugin-llm-judge",
    "reward-model": "rl-plugin-reward-model",
    "string-equal": "rl-plugin-string-equal",
    "control": "rlcore-control",
    "tiny-vla": "rlcore-control",
    **dict.fromkeys(("namespaces", "bubblewrap", "landlock", "http"), "rlcore-sandbox"),
    "math-numeric-equal": "rl-plugin-string-equal",
    "math-reward-string-equal": "rl-plugin-string-equal",
}
"""Ids of this project's plugins. Others are not guessed, because a package with a guessed name may be malicious."""


class Registry:
    """The components of all installed plugins. Plugins are imported on first use, targets by `load`.

    Every id can also be an import path: ``module:attribute`` or ``path/file.py:attribute``.
    """

    def __init__(self, plugins: Plugins | None = None) -> None:
        self.plugins = plugins or Plugins()
        self._claimed: dict[tuple[str, str], Offer | None] = {}
        self._hosted: dict[str, Spec | tuple[str, Mapping[str, str]]] = {}

    def host(self, id: str, python: str, variables: Mapping[str, str]) -> None:
        """Take the spec of an environment that is given as an import path from another interpreter."""
        if ":" in id:
            self._hosted.setdefault(id, (python, variables))

    def offers(self, kind: str) -> list[Offer]:
        """All specs of a kind with their plugins, sorted by id. Ids may be duplicated."""
        found = self.plugins.offers(*KINDS[kind])
        if KINDS[kind].spec is AlgorithmSpec:
            found = [offer for offer in found if isinstance(offer.spec, AlgorithmSpec) and offer.spec.part == kind]
        return sorted(found, key=lambda offer: offer.spec.id)

    def specs(self, kind: str) -> list[Spec]:
        """All specs of a kind, sorted by id."""
        return [offer.spec for offer in self.offers(kind)]

    def offer(self, kind: str, id: str) -> Offer | None:
        """The spec of an id with its plugin, which may have claimed it; None when ``id`` is an import path.

        Raises:
            PluginError: the id is unknown or ambiguous, or has an unsupported contract version.
        """
        offers = [] if ":" in id else [offer for offer in self.offers(kind) if offer.spec.id == id]
        if not offers and (claimed := self._claim(kind, id)) is not None:
            offers = [claimed]
        if not offers and ":" in id:
            return None
        if not offers:
            raise self._unknown(kind, id)
        if len(offers) > 1:  # rlcore's own components cannot be replaced
            offers = [offer for offer in offers if is_host(offer.plugin)] or offers
        if len(offers) > 1:
            origins = " and ".join(offer.plugin.origin for offer in offers)
            names = " or ".join(dict.fromkeys(f"RLCORE_DISABLE_PLUGINS={offer.plugin.name}" for offer in offers))
            raise PluginError(
                f"the {_label(kind)} {id!r} is registered twice", found=origins, fix=f"disable one: {names}"
            )
        (offer,) = offers
        if offer.spec.contract != CONTRACT_VERSION:
            older = "rlcore-core" if offer.spec.contract > CONTRACT_VERSION else offer.plugin.distribution
            raise PluginError(
                f"the {_label(kind)} {id!r} uses an unsupported contract version",
                found=f"version {offer.spec.contract}; this rlcore supports version {CONTRACT_VERSION}",
                where=offer.plugin.origin,
                fix=f"pip install --upgrade {older}",
            )
        return offer

    def _claim(self, kind: str, id: str) -> Offer | None:
        """The offer of a plugin that claims this id."""
        if kind in CLAIMED and (kind, id) not in self._claimed:
            self._claimed[kind, id] = self.plugins.claimed_offer(kind, id, KINDS[kind].spec)
        return self._claimed.get((kind, id))

    def spec(self, kind: str, id: str) -> Spec:
        """The spec of an id. For an import path, a spec is created.

        A created spec takes its fields from attributes of the component (`SPEC_ATTRIBUTES`: ``blocking = True``,
        ``scope = "group"``). Raises like `offer`, for an import path like `load`.
        """
        offer = self.offer(kind, id)
        if offer is not None:
            return offer.spec
        if kind == "environment" and id in self._hosted:
            if isinstance(known := self._hosted[id], tuple):
                known = self._hosted[id] = hosted_spec(id, *known)
            return known
        expected = KINDS[kind].spec
        if expected is AlgorithmSpec:
            return AlgorithmSpec(id=id, target=id, part=kind)  # type: ignore[arg-type]  # its kinds are its parts
        if kind == "recipe":
            return expected(id=id, target=id)
        target = self._import(kind, id, where=None, target=id, needs=())
        names = SPEC_ATTRIBUTES & {field.name for field in fields(expected)}
        spec = expected(id=id, target=id, **{name: getattr(target, name) for name in names if hasattr(target, name)})
        return _typed(spec, f"{_label(kind)} {id!r}")

    def load(self, kind: str, id: str) -> Any:
        """Import the target; for a recipe, its file (a `Traversable`).

        Raises:
            NotInstalledError: a dependency of the target is missing; the message has the pip command.
            PluginError: like `offer`, or the target cannot be imported or has the wrong form.
        """
        spec = self.spec(kind, id)
        if kind == "recipe":
            return resource(spec.target)
        where = self._origin(kind, spec)
        found = self._import(kind, id, where=where, target=spec.target, needs=spec.needs)
        if (other := disagreement(spec, found, SPEC_ATTRIBUTES)) is not None:
            name, value = other
            raise PluginError(
                f"{_label(kind)} {id!r} and its spec disagree about {name}",
                found=f"{value!r} in {spec.target}, and {getattr(spec, name)!r} in its spec",
                where=where,
                fix=f"set {name}={value!r} in its {type(spec).__name__}: attributes are for components without an id",
            )
        return found

    def config_model(self, kind: str, id: str) -> Any:
        """The pydantic model of the component's table, or None when it takes no keys.

        An algorithm, and a component given as an import path, can define its model as the attribute ``Config``.
        """
        spec = self.spec(kind, id)
        model = None
        if spec.config is not None:
            model = self.load_for(kind, spec, spec.config)
        elif isinstance(spec, AlgorithmSpec) or (":" in id and self.offer(kind, id) is None):
            hosted = kind == "environment" and id in self._hosted
            model = any_options() if hosted else getattr(self.load(kind, id), "Config", None)
        if model is not None and not (isinstance(model, type) and hasattr(model, "model_validate")):
            raise PluginError(
                f"the options of {_label(kind)} {id!r} must be a pydantic model",
                found=value_text(model),
                where=self._origin(kind, spec),
                fix=f"edit {spec.config or id}",
            )
        return model

    def load_for(self, kind: str, spec: Spec, target: str) -> Any:
        """Import ``target`` for ``spec``, so that errors name the component, its plugin and its requirements."""
        what, where = f"{_label(kind)} {spec.id!r}", self._origin(kind, spec)
        return load_attribute(target, what=what, where=where, needs=spec.needs)

    def named(self, kind: str, id: str) -> str:
        """The component and its plugin, for messages: ``reward 'exact' of the plugin acme (acme-rl 1.2)``."""
        plugins = [offer.plugin for offer in self.offers(kind) if offer.spec.id == id]
        if not plugins and (claimed := self._claim(kind, id)) is not None:
            plugins = [claimed.plugin]
        return f"{_label(kind)} {id!r}" + (f" of the plugin {plugins[0].named}" if len(plugins) == 1 else "")

    def _origin(self, kind: str, spec: Spec) -> str | None:
        offer = self.offer(kind, spec.id)
        return offer.plugin.origin if offer else None

    def _import(self, kind: str, id: str, *, where: str | None, target: str, needs: tuple[str, ...]) -> Any:
        found = load_attribute(target, what=f"{_label(kind)} {id!r}", where=where, needs=needs)
        if mistake := mistake_in(kind, found):
            expected, found_instead, fix = mistake
            raise PluginError(f"{_label(kind)} {id!r} {expected}", found=found_instead, where=where, fix=fix)
        return found

    def plugin(self, name: str) -> Plugin:
        """The loaded plugin with this plugin name or distribution name.

        Raises:
            PluginError: the plugin is not installed or not usable.
        """
        wanted = canonical(name)
        plugins = self.plugins.load()
        for plugin in [p for p in plugins if wanted in (canonical(p.name), canonical(p.distribution))]:
            if plugin.usable:
                return plugin
            raise PluginError(
                f"the plugin {plugin.name!r} is {'in conflict' if plugin.state == 'conflict' else plugin.state}",
                found=plugin.problem,
                where=plugin.origin,
                fix=plugin.fix,
            )
        names = sorted({plugin.name for plugin in plugins})
        raise PluginError(
            f"there is no plugin {name!r}",
            found=f"installed plugins: {', '.join(names)}",
            fix=f"{_hint(name, names) or 'rlcore plugins list'}; that of a folder: uv pip install -e FOLDER",
        )

    def _unknown(self, kind: str, id: str) -> PluginError:
        ids = sorted({spec.id for spec in self.specs(kind)})
        hook = KINDS[kind].hook
        owner = HOOK_OWNERS.get(hook)
        installed = {plugin.distribution for plugin in self.plugins.all()}
        if owner and owner not in installed:
            return PluginError(f"the {_label(kind)} {id!r} needs {owner}", fix=pip_line([owner]))
        if id.endswith(".py"):
            fix = f"use {id}:NAME, where NAME is defined in the file"
            return PluginError(f"the {_label(kind)} {id!r} is a file without a name", fix=fix)
        own = [known for known in ids if "/" in id and known.startswith(f"{id.partition('/')[0]}/")]
        unusable = [p for p in self.plugins.all() if p.state not in (State.OK, State.FOUND)]
        hints = [_hint(id, ids), *(f"{p.name} ({p.origin}) is {p.state}: {p.problem}; {p.fix}" for p in unusable)]
        return PluginError(
            f"there is no {_label(kind)} {id!r}",
            found=f"available: {', '.join(own or ids)}" if ids else "no installed plugin provides one",
            fix="\n".join(hint for hint in hints if hint) or "rlcore plugins list --check",
        )


def hosted_spec(id: str, python: str, variables: Mapping[str, str]) -> EnvironmentSpec:
    """The spec of an import path, from the attributes that the class has in another interpreter.

    Raises:
        UserError: there is no such interpreter, or it cannot import the class.
    """
    from rlcore.transport.interpreter import Interpreter
    from rlcore.transport.remote import absolute

    try:
        with Interpreter(python, variables=variables) as other:
            said = dict(other.describe(id, sorted(HOSTED_ATTRIBUTES), timeout_s=HOSTED_IMPORT_S))
    except EnvironmentFailure as error:
        raise PluginError(
            f"environment {id!r} cannot be imported in another interpreter",
            found=str(error),
            where=f"environment.python={python}",
            fix="correct the path, or install what it needs there",
        ) from None
    if isinstance(said.get("modalities"), list):
        said["modalities"] = frozenset(said["modalities"])
    known: dict[str, Any] = {name: said[name] for name in said.keys() & HOSTED_ATTRIBUTES}
    return _typed(EnvironmentSpec(id=id, target=absolute(id), **known), f"environment {id!r}")


def _typed(spec: Specified, what: str) -> Specified:
    """A spec made from the attributes of a class. Raises `PluginError` if one has the wrong type."""
    if wrong := next(wrong_fields(spec), None):
        raise PluginError(f"an attribute of {what} has the wrong type", found=wrong, fix="change it")
    return spec


@cache
def any_options() -> type[BaseModel]:
    """A model that accepts all keys, which the class validates when it is created."""
    from pydantic import ConfigDict, create_model

    return create_model("AnyOptions", __config__=ConfigDict(extra="allow", frozen=True))


def make(target: Any, options: Any) -> Any:
    """Create a component from its validated options (None if it takes no options). A function is returned unchanged."""
    if options is not None:
        return target(options)
    return target() if isinstance(target, (type, partial)) else target


def declared(target: Any, **offered: Any) -> dict[str, Any]:
    """Those of the offered keyword arguments that a function or a class declares."""
    names = inspect.signature(target).parameters
    return {name: value for name, value in offered.items() if name in names}


def make_component(what: str, target: Any, options: Any) -> Any:
    """Like `make`, but exceptions of the class are raised as `PluginError`."""
    try:
        with plugin_code(f"the creation of {what}"):
            return make(target, options)
    except UserError:
        raise
    except Exception as error:
        line = source_line(error)
        fix = f"edit {line}" if line else "the class must accept no arguments, or one argument: its Config"
        raise PluginError(f"{what} cannot be created", found=error_text(error), where=line, fix=fix) from error


def asked(
    what: str, function: Callable[..., Value], *arguments: Any, takes_long: bool = False, **keywords: Any
) -> Value:
    """The answer of a component, which ``what`` names. It is named as slow after some seconds, unless it takes long.

    Raises:
        PluginError: it raised an exception other than `RlcoreError`.
        WriteError: the disk is full.
    """
    try:
        with plugin_code("" if takes_long else what):
            return function(*arguments, **keywords)
    except RlcoreError:
        raise
    except Exception as error:
        found = error_text(error)
        if is_full_disk(error):
            raise WriteError(f"{what} cannot write its files", found=found, fix=FREE_DISK_SPACE) from error
        line = source_line(error)
        fix = f"edit {line}" if line else None
        raise PluginError(f"{what} failed", found=found, where=line, fix=fix) from error


def _hint(id: str, known: list[str]) -> str | None:
    near = did_you_mean(id, known)
    name = id.partition("/")[0]
    if name in KNOWN_DISTRIBUTIONS and name not in {text.partition("/")[0] for text in known}:
        install = pip_line([KNOWN_DISTRIBUTIONS[name]])
        return f"{near} or {install}" if near else install
    return near


def _label(kind: str) -> str:
    return kind.replace("_", " ")
