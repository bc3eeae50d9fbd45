"""Config adapters: plugins that translate overrides and configuration files of other systems.

A plugin registers a `rlcore.specs.ConfigAdapterSpec` with the hook ``rlcore_config_adapters``. Its target is an object
that is an `OverrideAdapter`, a `FileAdapter`, or both. A config adapter returns an additional layer, which ranks below
rlcore's own overrides.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rlcore.config.fields import keys_of
from rlcore.config.layers import COMMAND_LINE, Layer, file_layer, parse_value
from rlcore.config.origins import KeyPath, check_overrides, check_tree
from rlcore.config.schema import RunConfig
from rlcore.errors import PluginError, RlcoreError, UserError
from rlcore.plugin_calls import plugin_code, value_text
from rlcore.plugins.discovery import is_host
from rlcore.plugins.installed import Offer
from rlcore.plugins.loading import describe, pip_line
from rlcore.plugins.registry import Registry
from rlcore.specs import ConfigAdapterSpec

log = logging.getLogger("rlcore.plugins")
MOST_KEYS = 100_000
"""The most keys of a config adapter that are read."""
ADAPTERS = "rlcore-compat"
"""The distribution with rlcore's own config adapters."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file given with ``-c``, parsed."""

    name: str
    """As given on the command line."""
    layer: Layer
    """The keys and values of the file, each with its line as the origin."""

    @property
    def folder(self) -> Path:
        """The folder that contains the file, for relative paths."""
        return Path(self.name).expanduser().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The rest of the command line. The meaning of a key may depend on it."""

    overrides: Sequence[str] = ()
    """rlcore's own ``key=value`` overrides, which take precedence over every translation."""
    files: Sequence[Mapping[str, Any]] = ()
    """The contents of all files in order, translated or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Keys of another system, translated to rlcore keys."""

    layer: Layer
    """The rlcore keys that are set, each with the foreign key as its origin, and any problems."""
    lines: Sequence[str] = ()
    """One line for each foreign key: which rlcore key it sets, or what decides instead."""


class OverrideAdapter(Protocol):
    """Reads ``key=value`` overrides."""

    @property
    def keys(self) -> Collection[str]:
        """All supported keys, used for suggestions."""
        ...

    def claims(self, key: str) -> bool:
        """Whether this config adapter translates the key. Never called for keys of `RunConfig`."""
        ...

    def read_overrides(self, overrides: Sequence[str], given: Given) -> Translation:
        """Translate the claimed overrides. Report unsupported values as problems of the layer, not as exceptions."""
        ...


class FileAdapter(Protocol):
    """Reads configuration files, which its spec selects (`ConfigAdapterSpec.files`)."""

    def read_file(self, file: ConfigFile, given: Given) -> Translation:
        """Translate one file. Report unsupported values as problems of the layer, not as exceptions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """The files and overrides of a command line after translation."""

    files: Sequence[Layer]
    """One layer per file, in order."""
    overrides: Sequence[Layer]
    """One layer per config adapter that claimed overrides."""
    own: Sequence[str]
    """The overrides that no config adapter claimed."""
    lines: Sequence[str]


def flags_of(words: Sequence[str]) -> tuple[list[str], Layer]:
    """The overrides among the words of a command, and its flags of another system, such as ``--beta 0.1``, as a file.

    A flag without a value is true, and one with several is a list.
    """
    own: list[str] = []
    tree: dict[str, Any] = {}
    origins: dict[KeyPath, str] = {}
    given: list[str] | None = None
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            given = [value] if equals else []
            tree[name], origins[(name,)] = given, f"{COMMAND_LINE}--{name}"
        elif given is not None and "=" not in word:
            given.append(word)
        else:
            own.append(word)
            given = None
    for name, values in tree.items():
        read = [parse_value(value.lower() if value in ("True", "False") else value) for value in values]
        tree[name] = read if len(read) > 1 else read[0] if read else True
    return own, Layer(tree=tree, origins=origins)


def translate(registry: Registry, *, files: Sequence[str], overrides: Sequence[str]) -> Translated:
    """Translate each file with the config adapter that its keys select, and each override with the one that claims it.

    Raises:
        PluginError: a config adapter failed, or two config adapters claim the same file or key.
        UserError: a file cannot be read.
    """
    overrides, flags = flags_of(overrides)
    check_overrides(overrides)
    parsed = [ConfigFile(name=name, layer=file_layer(Path(name).expanduser(), name=name)) for name in files]
    parsed += [ConfigFile(name=COMMAND_LINE, layer=flags)] if flags.tree else []
    claimed, own = _assign(registry, overrides)
    given = Given(overrides=own, files=[file.layer.tree for file in parsed])
    of_files = [_translate_file(registry, file, given) for file in parsed]
    of_overrides = [_call(offer, partial(adapter.read_overrides, texts, given)) for offer, adapter, texts in claimed]
    for translated in (*of_files, *of_overrides):
        check_tree(translated.layer.tree, translated.layer.origin, name="the configuration")
    return Translated(
        files=[found.layer for found in of_files],
        overrides=[found.layer for found in of_overrides],
        own=own,
        lines=[line for found in (*of_files, *of_overrides) for line in found.lines],
    )


def config_adapter_of(registry: Registry, tree: Mapping[str, Any], name: str = "the file") -> Offer | None:
    """The config adapter that the top-level keys of a file select; None for rlcore's own format."""
    offers = [offer for offer, spec in _offers(registry) if any(set(names) <= set(tree) for names in spec.files)]
    return _select(offers, name)


def install_hint(registry: Registry) -> str | None:
    """How to install rlcore's own config adapters when they are missing, else None."""
    if any(plugin.distribution == ADAPTERS for plugin in registry.plugins.all()):
        return None
    return f"to use keys of verl, TRL or accelerate: {pip_line([ADAPTERS])}"


def nearest_adapter_key(registry: Registry, key: str) -> str | None:
    """The key or table of an installed config adapter that an unknown key probably means; None if several could be.

    A key of another system's files is answered with the rlcore key that it sets (``ours`` of its adapter).
    """
    keys: list[str] = []
    for offer, adapter in _override_adapters(registry):
        keys += _ask(offer, "keys", partial(_keys, adapter), default=[])
    if near := get_close_matches(key, [one for one in keys if one.count(".") == key.count(".")], n=1, cutoff=0.85):
        return near[0]
    for offer, spec in _offers(registry):
        if spec.files and (ours := _ask(offer, "ours", partial(_ours, registry, spec.id, key), default=None)):
            return ours
    ends = {known[: known.index(f".{key}") + len(key) + 1] for known in keys if f".{key}." in f"{known}."}
    if len(ends) == 1:
        return ends.pop()
    names = {names[0].upper(): names[0] for _, spec in _offers(registry) for names in spec.files if len(names) == 1}
    near = get_close_matches(key.upper(), names, n=1, cutoff=0.75)
    return names[near[0]] if near else None


def _ours(registry: Registry, id: str, key: str) -> str | None:
    ours = getattr(registry.load("config_adapter", id), "ours", None)
    found = ours(key) if callable(ours) else None
    return found if isinstance(found, str) else None


def _translate_file(registry: Registry, file: ConfigFile, given: Given) -> Translation:
    offer = config_adapter_of(registry, file.layer.tree, file.name)
    if offer is None:
        return Translation(layer=file.layer)
    adapter: FileAdapter = registry.load("config_adapter", offer.spec.id)
    return _call(offer, partial(adapter.read_file, file, given))


def _assign(
    registry: Registry, overrides: Sequence[str]
) -> tuple[list[tuple[Offer, OverrideAdapter, list[str]]], list[str]]:
    """The overrides that each config adapter claims, and the remaining ones."""
    known_keys, own = set(keys_of(RunConfig)), []
    claimed: dict[str, tuple[Offer, OverrideAdapter, list[str]]] = {}
    adapters = _override_adapters(registry) if overrides else []
    for text in overrides:
        key, equals, _ = text.partition("=")
        key = key.strip()
        asked = adapters if equals and key not in known_keys else ()
        claims = [each for each in asked if _ask(each[0], "claims", partial(_claims, each[1], key), default=False)]
        if (offer := _select([offer for offer, _ in claims], f"the key {key}")) is None:
            own.append(text)
        else:
            adapter = next(adapter for known, adapter in claims if known is offer)
            claimed.setdefault(offer.spec.id, (offer, adapter, []))[2].append(text)
    return list(claimed.values()), own


def _ask(offer: Offer, what: str, ask: Callable[[], Value], *, default: Value) -> Value:
    """The answer of a config adapter. One that fails must not affect runs that do not use it."""
    try:
        with plugin_code(f"{what} of the config adapter {offer.spec.id!r} of the plugin {offer.plugin.named}"):
            return ask()
    except Exception as error:
        named = f"{offer.spec.id} ({offer.plugin.origin})"
        log.error("skipping %s of the config adapter %s: %s", what, named, describe(error))
        return default


def _claims(adapter: OverrideAdapter, key: str) -> bool:
    return bool(adapter.claims(key))


def _keys(adapter: OverrideAdapter) -> list[str]:
    return [key for key in islice(adapter.keys, MOST_KEYS) if isinstance(key, str)]


def _offers(registry: Registry) -> Iterator[tuple[Offer, ConfigAdapterSpec]]:
    for offer in registry.offers("config_adapter"):
        if isinstance(offer.spec, ConfigAdapterSpec):
            yield offer, offer.spec


def _override_adapters(registry: Registry) -> list[tuple[Offer, OverrideAdapter]]:
    """The config adapters of overrides that can be loaded. A broken one must not affect runs that do not use it."""
    found: list[tuple[Offer, OverrideAdapter]] = []
    for id in dict.fromkeys(spec.id for _, spec in _offers(registry) if spec.overrides):
        try:
            offer = registry.offer("config_adapter", id)
            if offer is not None:
                found.append((offer, registry.load("config_adapter", id)))
        except UserError as error:
            log.error("skipping the config adapter %s: %s", id, error)
    return found


def _select(offers: Sequence[Offer], what: str) -> Offer | None:
    """The config adapter to use. rlcore's own takes precedence; any other conflict is an error."""
    offers = [offer for offer in offers if is_host(offer.plugin)] or list(offers)
    if len(offers) < 2:
        return offers[0] if offers else None
    rivals = " and ".join(f"{offer.spec.id} ({offer.plugin.origin})" for offer in offers)
    names = " or ".join(dict.fromkeys(f"RLCORE_DISABLE_PLUGINS={offer.plugin.name}" for offer in offers))
    raise PluginError(f"two config adapters claim {what}", found=rivals, fix=f"disable one: {names}")


def _call(offer: Offer, translate: Callable[[], Translation]) -> Translation:
    try:
        with plugin_code(f"the config adapter {offer.spec.id!r} of the plugin {offer.plugin.named}"):
            made = translate()
            if not isinstance(made, Translation) or not isinstance(made.layer, Layer):
                raise TypeError(f"it returned {value_text(made)}, expected a Translation")
            return dataclasses.replace(made, lines=list(map(str, made.lines)))
    except RlcoreError:
        raise
    except Exception as error:
        raise PluginError(
            f"the config adapter {offer.spec.id!r} failed",
            found=describe(error),
            where=offer.plugin.origin,
            fix=f"pip install --upgrade {offer.plugin.distribution}",
        ) from error
