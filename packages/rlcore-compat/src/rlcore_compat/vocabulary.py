"""A config adapter for ``key=value`` overrides, and the translation of keys with their mapping table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from rlcore.config.adapters import Given, Translation
from rlcore.config.layers import Layer, parse_value
from rlcore.config.merge import SHORT_FORMS
from rlcore.config.messages import Problem
from rlcore.config.origins import KeyPath
from rlcore.config.write import toml_value
from rlcore.redaction import mask_arguments

from rlcore_compat.tables import Meaning, Refused, Several, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The ``key=value`` overrides of another system, by their full names. Implements `OverrideAdapter`."""

    name: str
    meanings: Mapping[str, Meaning]
    """By key; ``table.*`` applies to all keys of a table that have no meaning of their own."""
    tables: frozenset[str] = frozenset()
    """Top-level tables of this system. Unknown keys in these tables are errors."""

    @property
    def keys(self) -> Collection[str]:
        """All supported keys."""
        return self.meanings.keys()

    def claims(self, key: str) -> bool:
        """Whether the key, or its table, belongs to this system."""
        key = _plain(key)
        return entry_of(key, self.meanings) is not None or key.partition(".")[0] in self.tables

    def read_overrides(self, overrides: Sequence[str], given: Given) -> Translation:
        """Translate each override, with the override as the origin. The last one of a key counts, as in Hydra."""
        keys: list[ForeignKey] = []
        problems: list[Problem] = []
        for text in overrides:
            name, _, value = text.partition("=")
            name = _plain(name)
            if (entry := entry_of(name, self.meanings)) is not None and not _is_misspelt(name, entry, self.meanings):
                keys.append(ForeignKey(text, name, foreign_value(value), f"command line: {text}"))
            else:
                (masked,) = mask_arguments([text])
                problems.append(unknown_key(name, f"command line: {masked}", self.name, self.meanings))
        last = {key.name: key for key in keys}
        values = {name: key.value for name, key in last.items()}
        found = interpret(list(last.values()), values, self.meanings, own=given.overrides, problems=problems)
        replaced = [key for key in keys if last[key.name] is not key]
        lines = [f"{key.text} sets nothing: {last[key.name].text} comes later" for key in replaced]
        return Translation(layer=found.layer, lines=[*lines, *found.lines])


def entry_of(key: str, meanings: Mapping[str, Meaning]) -> str | None:
    """The entry of the mapping table for a key: the key, or the innermost table with ``.*``."""
    if key in meanings:
        return key
    table = key.rpartition(".")[0]
    while table and f"{table}.*" not in meanings:
        table = table.rpartition(".")[0]
    return f"{table}.*" if table else None


def _is_misspelt(key: str, entry: str, meanings: Mapping[str, Meaning]) -> bool:
    """Whether a key that its whole table ignores looks like one of this table that is not ignored."""
    near = _misspelt(key, meanings, alike=0.9) if entry != key and meanings[entry].ours is None else None
    return near is not None and meanings[near].ours is not None


def _plain(key: str) -> str:
    """The key without Hydra's prefixes: ``+key=value`` adds a key, ``++key=value`` forces it."""
    return key.strip().lstrip("+")


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A key of another system with its value."""

    text: str
    """The text in messages."""
    name: str
    """The key in the mapping table."""
    value: Any
    origin: str

    def problem(self, kind: str, path: str, value: Any, reason: str) -> Problem:
        """A problem of this key."""
        shown = toml_value(value)
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        return Problem(kind=kind, path=path, value=shown, origin=self.origin, reason=reason)


def interpret(
    keys: Sequence[ForeignKey],
    values: Words,
    meanings: Mapping[str, Meaning],
    *,
    own: Sequence[str],
    problems: Sequence[Problem],
) -> Translation:
    """Translate keys.

    Args:
        keys: the keys to translate, all in ``meanings``
        values: all values by key, including settings that only affect the meaning of others
        meanings: the mapping table
        own: rlcore's own overrides, which take precedence
        problems: known problems, reported together with new ones
    """
    found = list(problems)
    lines: list[str] = []
    decided: dict[str, tuple[ForeignKey, Any]] = {}
    reported: set[str] = set()
    for key in keys:
        meaning = _meaning_of(key.name, meanings)
        try:
            value = meaning.translate(key.value, values)
        except Refused as refusal:
            if meaning.ours and (above := _above(own, meaning.ours)):
                lines.append(f"{key.text} sets nothing: {above} takes precedence")
                continue
            wrong = next((other for other in keys if other.name == refusal.of), key)
            if refusal.of is None or str(refusal) not in reported:
                found.append(wrong.problem("refused", wrong.name, wrong.value, str(refusal)))
            reported.add(str(refusal))
            continue
        sets = dict(value) if isinstance(value, Several) else {meaning.ours: value} if meaning.ours else {}
        if sets:
            sets |= meaning.also
        for target, item in sets.items():
            first, known = decided.setdefault(target, (key, item))
            if first is not key and known != item and not _above(own, target):
                reason = f"conflicts with {first.text}, which sets {toml_value(known)}: give one of the two"
                found.append(key.problem("bad value", target, item, reason))
        lines.append(_line(key, meaning, sets, own))
    return Translation(layer=_layer(decided, found), lines=lines)


def _meaning_of(key: str, meanings: Mapping[str, Meaning]) -> Meaning:
    entry = entry_of(key, meanings) or key
    meaning = meanings[entry]
    if entry != key and meaning.ours and meaning.ours.endswith(".*"):
        return replace(meaning, ours=meaning.ours.removesuffix("*") + key.removeprefix(entry.removesuffix("*")))
    return meaning


def _above(own: Sequence[str], *targets: str) -> str:
    """The rlcore overrides that set these keys."""
    return ", ".join(text for text in own if any(_touches(text, target) for target in targets))


def _line(key: ForeignKey, meaning: Meaning, sets: Mapping[str, Any], own: Sequence[str]) -> str:
    if not sets:
        return f"{key.text} sets nothing: {meaning.why}"
    shown = ", ".join(f"{target} = {toml_value(value)}" for target, value in sets.items())
    above = _above(own, *sets)
    note = f"but {above} takes precedence" if above else meaning.why
    return f"{key.text} -> {shown}" + (f" ({note})" if note else "")


def _layer(decided: Mapping[str, tuple[ForeignKey, Any]], problems: Sequence[Problem]) -> Layer:
    tree: dict[str, Any] = {}
    origins: dict[KeyPath, str] = {}
    for target, (key, value) in decided.items():
        *tables, name = path = tuple(target.split("."))
        place = tree
        for table in tables:
            if not isinstance(place.setdefault(table, {}), dict):
                place[table] = {"id": place[table]}  # a component's name alone, and now a key of its table
            place = place[table]
        if isinstance(place.get(name), dict) and not isinstance(value, dict):
            place, name = place[name], "id"
        place[name] = value
        origins[path] = key.origin
    return Layer(tree=tree, origins=origins, problems=tuple(problems))


def foreign_value(text: str) -> Any:
    """Parse a value like Hydra: ``True``, ``None``, ``[a,'b']``, numbers, else a string."""
    text = text.strip()
    if text[:1] == "[" and text[-1:] == "]":
        return [foreign_value(item) for item in text[1:-1].split(",") if item.strip()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    constants = {"True": True, "False": False, "None": None, "null": None}
    return constants[text] if text in constants else parse_value(text)


def unknown_key(key: str, origin: str, system: str, known: Collection[str], *, name: str | None = None) -> Problem:
    """The problem for a key that is not in the mapping table, where its name may be shorter than in the file."""
    near = _misspelt(name or key, known)
    reason = f"did you mean {near} ?" if near else f"this key of {system} is not supported"
    return Problem(kind="unknown key", path=key, origin=origin, reason=reason)


def _misspelt(key: str, known: Collection[str], *, alike: float = 0.8) -> str | None:
    """The key of the same table that differs by a typing mistake. A key of another meaning is never suggested."""
    table, _, name = key.rpartition(".")
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == table}
    near = get_close_matches(name, siblings, n=1, cutoff=alike)
    return siblings[near[0]] if near else None


def _touches(text: str, ours: str) -> bool:
    """Whether an rlcore override sets the key, a part of it, or the table that contains it."""
    own, _, value = text.partition("=")
    own = own.strip()
    if own in SHORT_FORMS and not value.lstrip().startswith("{"):
        own = f"{own}.{SHORT_FORMS[own]}"
    return f"{own}.".startswith(f"{ours}.") or f"{ours}.".startswith(f"{own}.")
