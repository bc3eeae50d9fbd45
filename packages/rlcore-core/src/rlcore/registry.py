"""From an id to what it names: spec, origin, imported target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from rlcore import specs as spec_types
from rlcore.discovery import Plugin, State, canonical, is_host
from rlcore.errors import PluginError, did_you_mean
from rlcore.forms import mistake_in
from rlcore.loading import load_attribute, resource
from rlcore.plugins import HOOK_OWNERS, Offer, Plugins
from rlcore.specs import CONTRACT_VERSION, AlgorithmSpec, Spec

__all__ = ["KINDS", "Kind", "Registry", "load_attribute", "make"]


class Kind(NamedTuple):
    """A kind of component: the hook that registers it and the type of its specs."""

    hook: str
    spec: type[Spec]


KINDS: Mapping[str, Kind] = {
    "environment": Kind("rlcore_environments", spec_types.EnvironmentSpec),
    "reward": Kind("rlcore_rewards", spec_types.RewardSpec),
    "tool": Kind("rlcore_tools", spec_types.ToolSpec),
    "dataset": Kind("rlcore_datasets", spec_types.DatasetSpec),
    "recipe": Kind("rlcore_recipes", spec_types.RecipeSpec),
    "tracker": Kind("rlcore_trackers", spec_types.TrackerSpec),
    "command": Kind("rlcore_commands", spec_types.CommandSpec),
    "check": Kind("rlcore_checks", spec_types.CheckSpec),
    "engine": Kind("rlcore_engines", spec_types.EngineSpec),
    "executor": Kind("rlcore_executors", spec_types.ExecutorSpec),
    "tool_parser": Kind("rlcore_tool_parsers", spec_types.ToolParserSpec),
    "sandbox": Kind("rlcore_sandboxes", spec_types.SandboxSpec),
    "chat_format": Kind("rlcore_chat_formats", spec_types.ChatFormatSpec),
    "trainer": Kind("rlcore_trainers", spec_types.TrainerSpec),
    "advantage": Kind("rlcore_algorithms", AlgorithmSpec),
    "loss": Kind("rlcore_algorithms", AlgorithmSpec),
    "strategy": Kind("rlcore_strategies", spec_types.StrategySpec),
    "model": Kind("rlcore_models", spec_types.ModelBuilderSpec),
}

FACTS = frozenset(
    {"blocking", "max_concurrency", "scope", "minimum", "maximum", "trains", "speaks"}
    | {"tables", "needs_environment", "quantizes"}
)
"""What a component that is named by its import path says by itself, where a plugin's says it in its spec."""

KNOWN_DISTRIBUTIONS: Mapping[str, str] = {
    "gsm8k-tools": "rl-plugin-gsm8k-tools",
    "calculator": "rl-plugin-gsm8k-tools",
    "string-equal": "rl-plugin-string-equal",
    "math-numeric-equal": "rl-plugin-string-equal",
    "math-reward-string-equal": "rl-plugin-string-equal",
}
"""Ids of this project's own plugins. Others are not guessed: a guessed name on a package index may be anyone's."""


class Registry:
    """Everything that the installed plugins offer. Plugins are imported at the first question, targets at `load`.

    Wherever an id is taken, ``module:attribute`` and ``path/file.py:attribute`` are too.
    """

    def __init__(self, plugins: Plugins | None = None) -> None:
        self.plugins = plugins or Plugins()

    def offers(self, kind: str) -> list[Offer]:
        """All specs of a kind with their plugins, sorted by id; an id may stand there twice."""
        hook, expected = KINDS[kind]
        found = self.plugins.offers(hook, expected)
        if kind in ("advantage", "loss"):
            found = [offer for offer in found if isinstance(offer.spec, AlgorithmSpec) and offer.spec.part == kind]
        return sorted(found, key=lambda offer: offer.spec.id)

    def specs(self, kind: str) -> list[Spec]:
        """All specs of a kind, sorted by id."""
        return [offer.spec for offer in self.offers(kind)]

    def offer(self, kind: str, id: str) -> Offer | None:
        """The spec of an id with its plugin; None when ``id`` is an import path, which no plugin offers.

        Raises:
            PluginError: unknown id, an id that two distributions offer, or another version of the contract.
        """
        if ":" in id:
            return None
        offers = [offer for offer in self.offers(kind) if offer.spec.id == id]
        if not offers:
            raise self._unknown(kind, id)
        if len(offers) > 1:  # installing a plugin must not take rlcore's own part away from others
            offers = [offer for offer in offers if is_host(offer.plugin)] or offers
        if len(offers) > 1:
            origins = " and ".join(offer.plugin.origin for offer in offers)
            names = " or ".join(dict.fromkeys(f"RLCORE_DISABLE_PLUGINS={offer.plugin.name}" for offer in offers))
            raise PluginError(
                f"the {_words(kind)} {id!r} is offered twice", found=origins, mend=f"leave one out: {names}"
            )
        (offer,) = offers
        if offer.spec.contract != CONTRACT_VERSION:
            older = "rlcore-core" if offer.spec.contract > CONTRACT_VERSION else offer.plugin.distribution
            raise PluginError(
                f"the {_words(kind)} {id!r} speaks another version of the contract",
                found=f"version {offer.spec.contract}; this rlcore speaks version {CONTRACT_VERSION}",
                where=offer.plugin.origin,
                mend=f"pip install --upgrade {older}",
            )
        return offer

    def spec(self, kind: str, id: str) -> Spec:
        """The spec of an id; one made on the spot for an import path.

        What such a component has as attributes of its own (`FACTS`: ``blocking = True``, ``scope = "group"``) stands in
        its spec. Raises as `offer`, for an import path as `load`.
        """
        offer = self.offer(kind, id)
        if offer is not None:
            return offer.spec
        expected = KINDS[kind].spec
        if expected is AlgorithmSpec:
            return AlgorithmSpec(id=id, target=id, part="loss" if kind == "loss" else "advantage")
        if kind == "recipe":
            return expected(id=id, target=id)
        target = self._import(kind, id, where=None, target=id, needs=())
        told = FACTS & {field.name for field in fields(expected)}
        return expected(id=id, target=id, **{name: getattr(target, name) for name in told if hasattr(target, name)})

    def load(self, kind: str, id: str) -> Any:
        """The imported target; for a recipe its file (a `Traversable`).

        Raises:
            NotInstalledError: what the target imports is missing; names the pip line.
            PluginError: as `offer`, the target cannot be imported, or is not what this kind needs.
        """
        spec = self.spec(kind, id)
        if kind == "recipe":
            return resource(spec.target)
        offer = self.offer(kind, id)
        return self._import(
            kind, id, where=offer.plugin.origin if offer else None, target=spec.target, needs=spec.needs
        )

    def config_model(self, kind: str, id: str) -> Any:
        """The pydantic model of the component's table, or None when it takes no keys.

        A component named by an import path may carry its model as the attribute ``Config``.
        """
        spec = self.spec(kind, id)
        if spec.config is not None:
            return self.load_for(kind, spec, spec.config)
        return getattr(self.load(kind, id), "Config", None) if ":" in id else None

    def load_for(self, kind: str, spec: Spec, target: str) -> Any:
        """Import ``target`` on behalf of ``spec``, so that an error names the component, its plugin and its needs."""
        offer = None if ":" in spec.id else self.offer(kind, spec.id)
        where = offer.plugin.origin if offer else None
        return load_attribute(target, what=f"{_words(kind)} {spec.id!r}", where=where, needs=spec.needs)

    def _import(self, kind: str, id: str, *, where: str | None, target: str, needs: tuple[str, ...]) -> Any:
        found = load_attribute(target, what=f"{_words(kind)} {id!r}", where=where, needs=needs)
        if mistake := mistake_in(kind, found):
            wanted, instead, mend = mistake
            raise PluginError(f"{_words(kind)} {id!r} {wanted}", found=instead, where=where, mend=mend)
        return found

    def plugin(self, name: str) -> Plugin:
        """The loaded plugin of a name (a distribution's name will do).

        Raises:
            PluginError: it is not installed, or it is not usable, with the sentence that mends it.
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
                mend=plugin.fix,
            )
        names = sorted({plugin.name for plugin in plugins})
        raise PluginError(
            f"there is no plugin {name!r}", found=f"installed are {', '.join(names)}", mend=_hint(name, names)
        )

    def _unknown(self, kind: str, id: str) -> PluginError:
        ids = sorted({spec.id for spec in self.specs(kind)})
        hook = KINDS[kind].hook
        owner = HOOK_OWNERS.get(hook)
        installed = {plugin.distribution for plugin in self.plugins.all()}
        if owner and owner not in installed:
            return PluginError(f"the {_words(kind)} {id!r} needs {owner}", mend=f"pip install {owner}")
        if id.endswith(".py"):
            mend = f"{id}:NAME, with the name of what the file defines"
            return PluginError(f"the {_words(kind)} {id!r} is a file", mend=mend)
        unusable = [p for p in self.plugins.all() if p.state not in (State.OK, State.FOUND)]
        hints = [_hint(id, ids), *(f"{p.name} ({p.origin}) is {p.state}: {p.problem}; {p.fix}" for p in unusable)]
        return PluginError(
            f"there is no {_words(kind)} {id!r}",
            found=f"there are {', '.join(ids)}" if ids else "no installed plugin offers one",
            mend="\n         ".join(hint for hint in hints if hint) or "rlcore plugins list --check",
        )


def make(target: Any, options: Any) -> Any:
    """A component of its validated options (None where it takes none). A function is taken as it is."""
    if options is not None:
        return target(options)
    return target() if isinstance(target, type) else target


def _hint(id: str, known: list[str]) -> str | None:
    near = did_you_mean(id, known)
    name = id.partition("/")[0]
    if name in KNOWN_DISTRIBUTIONS and name not in {text.partition("/")[0] for text in known}:
        install = f"pip install {KNOWN_DISTRIBUTIONS[name]}"
        return f"{near} or {install}" if near else install
    return near


def _words(kind: str) -> str:
    return kind.replace("_", " ")
