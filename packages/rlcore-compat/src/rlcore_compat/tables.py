"""The keys of another system in a TOML file: each sets rlcore keys, is ignored with a reason, or is refused.

An entry has the fields of `Meaning`; ``read`` is the import path of a function, and ``"null"`` stands for None::

    [optimiser]
    "lab.rate" = {ours = "trainer.learning_rate"}
    "lab.nodes" = {why = "a run uses one machine", only = [1], refuse = "a run uses one machine: give 1"}
    "lab.batch" = {ours = "trainer.tasks_per_step", why = "batch / answers", read = "rl_plugin_lab.adapter:tasks"}
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rlcore.plugins.loading import load_attribute, resource

Words = Mapping[str, Any]
"""All foreign keys of a command line or file with their values. The meaning of a key may depend on others."""
ABSENT = "absent"
"""Stands for the value of a key that is not given, in `Meaning.only_with` and `Meaning.not_with`."""


class Refused(Exception):
    """Raised for a value that rlcore does not support.

    Args:
        reason: what is not supported, and the closest alternative
        of: the invalid key, if it is not the key that is being read; it is reported once
    """

    def __init__(self, reason: str, *, of: str | None = None) -> None:
        self.of = of
        super().__init__(reason)


class Several(dict[str, Any]):
    """Return type of `Meaning.read` for a key that sets several rlcore keys, other ones, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The translation of a foreign key."""

    ours: str | None = None
    """The dotted rlcore key that it sets, or None. In the meaning of a whole table (``table.*``), a final ``*`` is the
    rest of the key."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Additional dotted rlcore keys to set, whatever the value, if it sets any."""
    why: str = ""
    """A note for the user; required when it sets nothing."""
    only_with: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The key sets nothing unless each of these keys has one of these values."""
    not_with: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The key sets nothing if one of these keys has one of these values."""
    unset: Sequence[Any] = ()
    """Values that set nothing."""
    values: Sequence[tuple[Any, Any]] = ()
    """Values of the other system, each with that of rlcore."""
    only: Sequence[Any] = ()
    """Further supported values."""
    refuse: str = ""
    """The reason to refuse all values that are neither in ``values`` nor in ``only``, which may contain ``{value}``."""
    read: Callable[[Any, Words], Any] = lambda value, words: value
    """Convert any other value, or return `Several`. Raises `Refused` for unsupported values."""

    @property
    def never(self) -> bool:
        """Whether all values are refused. Keys with the same reason are reported once."""
        return bool(self.refuse) and not self.values and not self.only

    def translate(self, value: Any, words: Words) -> Any:
        """The value in rlcore, or `Several`. Raises `Refused` for unsupported values."""
        if not all(_has(words, key, values) for key, values in self.only_with.items()):
            return Several()
        if any(_has(words, key, values) for key, values in self.not_with.items()) or value in self.unset:
            return Several()
        for theirs, ours in self.values:
            if _same(value, theirs):
                return ours
        if self.refuse and value not in self.only:
            raise Refused(self.refuse.replace("{value}", str(value)), of="" if self.never else None)
        return self.read(value, words)


def _has(words: Words, key: str, values: Sequence[Any]) -> bool:
    return any(_same(words.get(key, ABSENT), value) for value in values)


def _same(value: Any, other: Any) -> bool:
    """Equality that distinguishes 1 from true."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


class Table(Mapping[str, Meaning]):
    """The meanings of a TOML file by key. The file is parsed when a key is needed.

    Args:
        target: the file in a package, ``module:path/inside``
        sections: the tables of the file to use; all if none is given. An entry replaces that of an earlier table.
    """

    def __init__(self, target: str, *sections: str) -> None:
        self.target, self.sections = target, sections

    @cached_property
    def _text(self) -> str:
        return resource(self.target).read_text(encoding="utf-8")

    @cached_property
    def _meanings(self) -> Mapping[str, Meaning]:
        try:
            tables = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{self.target}: {error}") from None
        entries = [item for section in self.sections or tables for item in tables[section].items()]
        return {key: self._meaning(key, entry) for key, entry in entries}

    def _meaning(self, key: str, entry: Mapping[str, Any]) -> Meaning:
        try:
            found = {name: value if name == "also" else _value(value) for name, value in entry.items()}
            if "read" in found:
                found["read"] = load_attribute(found["read"], what=f"the function of {key} in {self.target}")
            return Meaning(**found)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"{key} in {self.target}: {error}") from None

    def __contains__(self, key: object) -> bool:
        # Config adapters are asked for most overrides, and most are keys of rlcore, at most values of entries.
        # A search of the text is faster than parsing it. TOML requires quotes around a key with dots.
        text, quoted = self._text.replace("'", '"'), f'"{key}"'
        found = text.count(quoted) > text.count(f"= {quoted}") if "." in str(key) else str(key) in text
        return found and key in self._meanings

    def __getitem__(self, key: str) -> Meaning:
        return self._meanings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._meanings)

    def __len__(self) -> int:
        return len(self._meanings)


def _value(value: Any) -> Any:
    """The value with None for ``"null"``, which TOML lacks."""
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    return None if value == "null" else value
