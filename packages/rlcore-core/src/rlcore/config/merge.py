"""Merge layers: later ones take precedence, and each value keeps its origin.

In a list of environments, ``[[environment]]``, each table gets the shared tables that it uses.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from rlcore.config.layers import COMMAND_LINE, LISTS, OVERRIDES, Layer, leaves, nearest_origin
from rlcore.config.messages import Problem
from rlcore.config.origins import KeyPath
from rlcore.config.schema import EnvironmentTable
from rlcore.errors import did_you_mean

SHORT_FORMS = {
    "model": "path",
    **dict.fromkeys(("environment", "sandbox", "trainer", "strategy", "sampler"), "id"),
}
"""``model=PATH`` is short for ``model.path=PATH``. For other tables, the value is the ``id`` of the component."""
WITHIN = (("algorithm", "advantage"), ("algorithm", "loss"), ("preference", "loss"))
"""Tables of components within another table. A string in place of the table is its ``id``. If a layer changes the id,
the values that recipes and files set for the previous component are dropped."""
SHARED = ("data", "reward")
"""Tables of an environment that several may share, as ``[data]`` and ``[[reward]]``."""


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
            cleared = value == {} and layer.origin((*source, key)).startswith(COMMAND_LINE)
            if isinstance(value, Mapping) and isinstance(old, dict) and not cleared:
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


def _plain(value: Any) -> Any:
    """A deep copy. The string ``null`` becomes None in every layer, because TOML has no null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if value == "null" else value


def merge_layers(layers: Iterable[Layer], *, short_forms: Mapping[str, str] = SHORT_FORMS) -> Merged:
    """Merge layers in order; the last one takes precedence. The short forms are those of a run's configuration."""
    merged = Merged(short_forms=short_forms)
    for layer in layers:
        merged.add(layer)
    return merged


def merge_environments(layers: Sequence[Layer]) -> Merged:
    """Merge layers, with the tables of each environment complete: see `_own_tables`.

    Overrides such as ``environment.1.data.limit=5`` come last, so that they change single keys of a shared table.
    """
    late = [layer for layer in layers if _is_late(layer)]
    merged = merge_layers(layer for layer in layers if layer not in late)
    _own_tables(merged)
    for layer in late:
        _drop_other_data(merged, layer)
        merged.add(layer)
    return merged


def _is_late(layer: Layer) -> bool:
    """Whether a layer is an override of ``environment.N.data`` or ``environment.N.reward``."""
    paths = [path for path, _ in leaves(layer.tree)]
    return all(
        len(path) > 2 and path[0] == "environment" and path[2] in SHARED and layer.origin(path).startswith(OVERRIDES)
        for path in paths
    )


def _drop_other_data(merged: Merged, layer: Layer) -> None:
    """Drop the data of an environment, except overrides, if the layer selects another dataset."""
    tables = merged.tree.get("environment")
    for place, values in layer.tree["environment"].items():
        id = values["data"].get("id") if isinstance(values.get("data"), Mapping) else None
        for n, table in enumerate(tables if isinstance(tables, list) else []):
            data = table.get("data") if isinstance(table, dict) and place in (str(n), table.get("name")) else None
            if id is not None and isinstance(data, dict) and id != data.get("id", table.get("id")):
                path = ("environment", str(n), "data")
                stays = [key for key in data if merged.origin((*path, key)).startswith(OVERRIDES)]
                table["data"] = {key: data[key] for key in stays}


def _own_tables(merged: Merged) -> None:
    """Move the tables ``[data]`` and ``[[reward]]`` into the environments of a list that use them.

    An environment without rewards uses ``[[reward]]``. An environment without data uses ``[data]`` if that has an
    ``id``, or if the environment has the same id as the first one; otherwise the dataset with its own id. Overrides
    that no environment uses are reported as problems. Each environment gets its default name: its id, or the attribute
    of an import path.
    """
    tables = merged.tree.get("environment")
    if not isinstance(tables, list):
        return
    for table in tables:
        if isinstance(table, dict) and isinstance(id := table.get("id"), str):
            table.setdefault("name", id.rpartition(":")[2])
    for key in SHARED:
        shared = merged.tree.get(key)
        if not isinstance(shared, dict if key == "data" else list):
            continue
        del merged.tree[key]
        users = [n for n, table in enumerate(tables) if isinstance(table, dict) and key not in table]
        if isinstance(shared, dict) and "id" not in shared:
            users = [n for n in users if tables[n].get("id") == _id_of(tables[0])]
        for n in users:
            tables[n][key] = copy.deepcopy(shared)
            _copy_origins(merged, (key,), ("environment", str(n), key))
        if not users:
            merged.problems += _unused(merged, key, shared, tables)


def _id_of(table: object) -> object:
    return table.get("id") if isinstance(table, dict) else None


def _copy_origins(merged: Merged, source: KeyPath, path: KeyPath) -> None:
    copies = {(*path, *known[len(source) :]): origin for known, origin in merged.origins.items() if known[:1] == source}
    merged.origins |= copies


def _unused(merged: Merged, key: str, shared: Any, tables: Sequence[Any]) -> Iterator[Problem]:
    names = [str(table["name"]) for table in tables if isinstance(table, dict) and "name" in table]
    for path, value in leaves(shared, (key,)):
        if merged.origin(path).startswith(OVERRIDES):
            fix = ", or ".join(".".join(("environment", name, *path)) for name in names[:2])
            reason = f"every environment has its own {key}: set {fix}"
            yield Problem(
                kind="unknown key", path=".".join(path), value=str(value), origin=merged.origin(path), reason=reason
            )


def name_problems(merged: Merged) -> Iterator[Problem]:
    """A problem for each name that several environments have."""
    tables = enumerate(merged.tree["environment"])
    named = sorted((str(table["name"]), n) for n, table in tables if isinstance(table, dict) and "name" in table)
    for name, same in groupby(named, key=lambda pair: pair[0]):
        _, *others = [n for _, n in same]
        for n in others:
            yield Problem(
                kind="bad value",
                path=f"environment.{n}.name",
                value=repr(name),
                origin=merged.origin(("environment", str(n))),
                reason=f"another environment has this name\nfix: environment.{n}.name=NAME",
            )


def weight_problems(merged: Merged, tables: Sequence[EnvironmentTable]) -> Iterator[Problem]:
    """A problem if all weights are 0 at a step."""
    steps = {step for table in tables if isinstance(table.weight, list) for step, _ in table.weight}
    for step in sorted(steps or {0}):
        if not any(table.weight_at(step) for table in tables):
            path = ("environment", "0", "weight")
            reason = f"all weights are 0 at step {step}: no prompt can be sampled"
            yield Problem(kind="bad value", path=".".join(path), value="0", origin=merged.origin(path), reason=reason)
            return
