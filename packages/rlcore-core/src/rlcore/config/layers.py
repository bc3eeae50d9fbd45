"""Configuration layers: recipe, files and overrides. Later layers win; each value keeps its origin."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.origins import KeyPath, check_overrides, check_tree, parse_toml, parse_yaml, read_text
from rlcore.errors import did_you_mean
from rlcore.plugins.registry import Registry, asked
from rlcore.redaction import remember_arguments, remember_secrets

SHORT_FORMS = {
    "model": "path",
    **dict.fromkeys(("environment", "sandbox", "trainer", "strategy", "sampler"), "id"),
}
"""``model=PATH`` is short for ``model.path=PATH``. For other tables, the value is the ``id`` of the component."""
WITHIN = (("algorithm", "advantage"), ("algorithm", "loss"))
"""Tables of components within another table. A string in place of the table is its ``id``. If a layer changes the id,
the values that recipes and files set for the previous component are dropped."""
LISTS = {"reward": frozenset({"weight"}), "environment": frozenset({"weight", "name"})}
"""Lists of components, with the keys of a component's table that stay when a layer changes its id."""
DEFAULT = "default"
COMMAND_LINE = "command line: "
LAST = 2**31
PYTHON = "Python: "
OVERRIDES = (COMMAND_LINE, PYTHON)
"""The origin of an override begins with one of these, followed by the override."""
BARE_WORD = re.compile(r"[\w./:@-]+")
BARE_LIST = re.compile(rf"\[\s*({BARE_WORD.pattern}(?:\s*,\s*{BARE_WORD.pattern})*)\s*\]")
"""``[console,wandb]``: a list of strings without quotes."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Values from one source, with their origins. No message shows the secrets among the values."""

    tree: Mapping[str, Any]
    origins: Mapping[KeyPath, str]
    problems: tuple[Problem, ...] = ()
    """Problems found while reading the source, reported together with all others."""

    def __post_init__(self) -> None:
        remember_secrets(self.tree)

    def origin(self, path: KeyPath) -> str:
        """The origin of the value at ``path``, or of its nearest parent."""
        return nearest_origin(self.origins, path)

    def below(self, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        """The origins of ``path`` and of all paths below it."""
        start = bisect_left(self._sorted, path)
        for known in islice(self._sorted, start, None):
            if known[: len(path)] != path:
                return
            yield known, self.origins[known]

    @cached_property
    def _sorted(self) -> list[KeyPath]:
        return sorted(self.origins)


@dataclass(slots=True)
class Merged:
    """The result of merging layers."""

    tree: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    short_forms: Mapping[str, str] = field(default_factory=lambda: SHORT_FORMS)

    def origin(self, path: KeyPath) -> str:
        """The origin of the value at ``path``, or of its nearest parent; ``default`` when no layer sets it."""
        return nearest_origin(self.origins, path)

    def add(self, layer: Layer) -> None:
        """Merge a layer; its values take precedence."""
        self.problems += layer.problems
        tree = layer.tree
        for path in WITHIN:
            tree = self._within(path, tree)
        self._merge(self.tree, tree, (), (), layer)

    def _within(self, path: KeyPath, over: Mapping[str, Any]) -> Mapping[str, Any]:
        """Prepare the table of a component for a layer, and return the tree of the layer to merge."""
        table, key = path
        tables = [tree.get(table) for tree in (self.tree, over)]
        base, new = (tree if isinstance(tree, Mapping) else {} for tree in tables)
        old, value = base.get(key), new.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = self.tree[table][key] = {"id": old}
        if isinstance(old, dict) and isinstance(value, str):
            over = {**over, table: {**new, key: {"id": value}}}
        id = value.get("id") if isinstance(value, Mapping) else value
        if isinstance(old, dict) and "id" in old and id not in (None, old["id"]):
            for own in [own for own in old if not self.origin((*path, own)).startswith(OVERRIDES)]:
                del old[own]  # overrides stay: their order does not matter
        return over

    def _merge(
        self, base: dict[str, Any], over: Mapping[str, Any], path: KeyPath, source: KeyPath, layer: Layer
    ) -> None:
        for key, value in over.items():
            old = base.get(key)
            if not path and key in self.short_forms and isinstance(value, str):
                value = {self.short_forms[key]: value}
            if key in LISTS and isinstance(value, Mapping) and value and all(map(str.isdecimal, value)):
                old = self._listed((*path, key), base)
            if isinstance(value, Mapping) and isinstance(old, dict):
                self._merge(old, value, (*path, key), (*source, key), layer)
            elif isinstance(value, Mapping) and isinstance(old, list):
                self._merge_into_list(old, value, (*path, key), (*source, key), layer)
            else:
                if key in base:
                    self._drop_origins((*path, key))
                base[key] = _plain(value)
                self._copy_origins((*path, key), (*source, key), layer)

    def _listed(self, path: KeyPath, base: dict[str, Any]) -> Any:
        """The list of components at ``path``; a single table becomes the first of a list."""
        old = base.setdefault(path[-1], [])
        if isinstance(old, dict):
            base[path[-1]] = [old]
            moved = {known: origin for known, origin in self.origins.items() if known[: len(path)] == path}
            self._drop_origins(path)
            self.origins |= {(*path, "0", *known[len(path) :]): origin for known, origin in moved.items()}
        return base[path[-1]]

    def _replaced(self, path: KeyPath, old: dict[str, Any], id: object) -> None:
        """Drop the values of a component whose id a layer changes, except those of overrides: see `WITHIN`."""
        if id in (None, old.get("id")):
            return
        for key in [key for key in old if key not in LISTS[path[-2]]]:
            if not self.origin((*path, key)).startswith(OVERRIDES):
                del old[key]
                self._drop_origins((*path, key))

    def _merge_into_list(
        self, base: list[Any], over: Mapping[str, Any], path: KeyPath, source: KeyPath, layer: Layer
    ) -> None:
        """Select a table by index, id or name: ``reward.0.weight``, ``reward.ID.weight``.

        An id at the next free index, such as ``reward.1.id``, adds a table.
        """
        names = [_name_of(item, str(n)) for n, item in enumerate(base)]
        for key, value in over.items():
            place = int(key) if key.isdecimal() else names.index(key) if key in names else -1
            if path[-1] in LISTS and isinstance(value, Mapping) and "id" in value:
                if place == len(base):
                    base.append({})
                    names.append(key)
                elif 0 <= place < len(base) and isinstance(base[place], dict):
                    self._replaced((*path, str(place)), base[place], value["id"])
            if not 0 <= place < len(base):
                problem = Problem(
                    kind="unknown key",
                    path=".".join((*path, key)),
                    origin=layer.origin((*source, key)),
                    reason=did_you_mean(key, names) or _there_are(path, names),
                )
                self.problems.append(problem)
            elif isinstance(value, Mapping) and isinstance(base[place], dict):
                self._merge(base[place], value, (*path, str(place)), (*source, key), layer)
            else:
                self._drop_origins((*path, str(place)))
                base[place] = _plain(value)
                self._copy_origins((*path, str(place)), (*source, key), layer)

    def _drop_origins(self, path: KeyPath) -> None:
        for old in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[old]

    def _copy_origins(self, path: KeyPath, source: KeyPath, layer: Layer) -> None:
        self.origins[path] = layer.origin(source)
        for known, origin in layer.below(source):
            self.origins[path + known[len(source) :]] = origin


def _name_of(item: Any, default: str) -> str:
    """The name of a table in a list: its ``name``, or else its ``id``."""
    return str(item.get("name", item.get("id", default))) if isinstance(item, dict) else default


def _there_are(path: KeyPath, names: Sequence[str]) -> str:
    there = f"there are: {', '.join(names) or 'none'}"
    return f"{there}; {'.'.join(path)}.{len(names)}.id=ID adds one" if path[-1] in LISTS else there


def nearest_origin(origins: Mapping[KeyPath, str], path: KeyPath) -> str:
    """The origin of ``path``, or of the nearest parent that has one."""
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return DEFAULT


def _plain(value: Any) -> Any:
    """A deep copy. The string ``null`` becomes None in every layer, because TOML has no null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if value == "null" else value


def leaves(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every value in a tree with its path. Empty tables and lists count as values."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from leaves(value, (*path, str(key)))
    elif isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, str(index)))
    else:
        yield path, tree


def file_layer(path: Path, *, text: str | None = None, name: str | None = None) -> Layer:
    """Read a TOML or YAML file. Messages refer to it as ``name``."""
    name = name or str(path)
    text = read_text(path) if text is None else text
    parse = parse_yaml if path.suffix in {".yaml", ".yml"} else parse_toml
    tree, lines = parse(text, name)
    return Layer(tree=tree, origins={key: f"{name}:{line}" for key, line in lines.items()})


def recipe_layer(registry: Registry, id: str) -> Layer:
    """The recipe of a plugin with this id."""
    text = asked(f"the text of {registry.named('recipe', id)}", registry.load("recipe", id).read_text, encoding="utf-8")
    return file_layer(Path(f"{id}.toml"), text=text, name=f"recipe {id}")


def values_layer(tree: Mapping[str, Any], origin: str) -> Layer:
    """Plain values with a common origin."""
    return Layer(tree=tree, origins={path: origin for path, _ in leaves(tree)})


def override_of(origin: str) -> tuple[str, str]:
    """The place and the text of the override that an origin names; the place is empty for any other origin."""
    place = next((place for place in OVERRIDES if origin.startswith(place)), "")
    return place, origin.removeprefix(place)


def override_layers(overrides: Sequence[str], place: str = COMMAND_LINE) -> list[Layer]:
    """One layer for each ``a.b=c`` override. Values are parsed with `parse_value`. Ids in lists come before other keys.

    Args:
        overrides: texts of the form ``a.b=c``
        place: where they come from, one of `OVERRIDES`

    Raises:
        ConfigError: names every override without a key or an equals sign.
    """
    check_overrides(overrides)
    layers: list[Layer] = []
    ranks: list[int] = []
    problems: list[Problem] = []
    remember_arguments(overrides)
    for text in overrides:
        key, equals, value = text.partition("=")
        path = tuple(key.strip().split("."))
        if not equals or not all(path):
            reason = "an override has the form KEY=VALUE, such as rollout.group_size=4"
            problems.append(Problem(kind="bad override", path=text, origin=place.rstrip(": "), reason=reason))
            continue
        tree: Any = parse_value(value)
        for part in reversed(path):
            tree = {part: tree}
        origin = f"{place}{text}"
        origins = {path: origin, path[:1]: origin}
        check_tree(tree, partial(nearest_origin, origins), name="the command line")
        layers.append(Layer(tree=tree, origins=origins))
        ranks.append(_rank(path))
    if problems:
        raise ProblemsError(problems)
    return [layer for _, layer in sorted(zip(ranks, layers, strict=True), key=itemgetter(0))]


def _rank(path: KeyPath) -> int:
    """The place of an override: a table of a list is added before its keys are set, whatever the order."""
    if path[0] not in LISTS or len(path) < 3:
        return 0
    return len(path) if path[-1] == "id" else LAST


def parse_value(text: str) -> Any:
    """Parse as a TOML value, else as a list of unquoted strings, else return the text itself."""
    try:
        tree = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        bare = BARE_LIST.fullmatch(text.strip())
        return [item.strip() for item in bare[1].split(",")] if bare else text
    return tree["value"] if set(tree) == {"value"} else text


def merge_layers(layers: Iterable[Layer], *, short_forms: Mapping[str, str] = SHORT_FORMS) -> Merged:
    """Merge layers in order; the last one takes precedence. The short forms are those of a run's configuration."""
    merged = Merged(short_forms=short_forms)
    for layer in layers:
        merged.add(layer)
    return merged


__all__ = ["KeyPath"]
