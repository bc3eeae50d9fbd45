"""A config adapter for configuration files, defined by a mapping table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.config.adapters import ConfigFile, Given, Translation
from rlcore.config.messages import Problem
from rlcore.config.origins import KeyPath
from rlcore.config.write import toml_value
from rlcore.data.files import SUFFIXES
from rlcore.models.folder import BUILTIN

from rlcore_compat.tables import Meaning, Words
from rlcore_compat.vocabulary import ForeignKey, interpret, unknown_key


def _nothing_else(given: Given) -> Words:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVocabulary:
    """The keys of one type of configuration file. Implements `FileAdapter`."""

    name: str
    meanings: Mapping[str, Meaning]
    block: str = ""
    """The top-level table that contains all keys, if any. It is also a key of ``meanings``."""
    also_within: str = ""
    """A table whose keys are also accepted outside of it."""
    paths: frozenset[str] = frozenset()
    """Keys whose values are paths relative to the configuration file."""
    models: frozenset[str] = frozenset()
    """Keys whose values are models or data relative to the configuration file, or hub ids, which are unchanged."""
    beside: Callable[[Given], Words] = field(default=_nothing_else)
    """Additional settings from the rest of the command line. Those of the file take precedence."""

    def ours(self, key: str) -> str | None:
        """The rlcore key that a key of these files sets, for one that is given as an override."""
        return self.meanings[key].ours if key in self.meanings else None

    def read_file(self, file: ConfigFile, given: Given) -> Translation:
        """Translate each key, with its line in the file as the origin."""
        keys, problems = self._keys(file)
        present = [key for key in keys if key.value is not None]
        values = {**self.beside(given), **{key.name: key.value for key in present}}
        found = interpret(present, values, self.meanings, own=given.overrides, problems=problems)
        absent = [f"{key.text} sets nothing: null is the same as omitting the key" for key in keys if key.value is None]
        return Translation(layer=found.layer, lines=[*found.lines, *absent])

    def _keys(self, file: ConfigFile) -> tuple[list[ForeignKey], list[Problem]]:
        keys: list[ForeignKey] = []
        problems: list[Problem] = []
        for path, value in self._leaves(file.layer.tree, ()):
            origin = file.layer.origin(path)
            key = self._key_of(path)
            if path == (self.block,):
                shown = toml_value(value)
                needs = Problem(kind="bad value", path=self.block, value=shown, origin=origin, reason="needs a table")
                problems.append(needs)
                continue
            if key is None:
                text, name = ".".join(path), ".".join(path).removeprefix(f"{self.block}.")
                name = name.removeprefix(f"{self.also_within}.") if self.also_within else name
                problems.append(unknown_key(text, origin, self.name, self.meanings, name=name))
                continue
            text = f"{origin}: {'.'.join(path[bool(self.block) :])} = {toml_value(value)}"
            keys.append(ForeignKey(text, key, self._resolve_path(key, value, file.folder), origin))
        if self.block:
            origin = file.layer.origin((self.block,))
            keys.insert(0, ForeignKey(f"{origin}: {self.block}", self.block, True, origin))
        return keys, problems

    def _leaves(self, tree: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
        """Every key with its value. Tables that are keys of ``meanings`` are not entered."""
        for name, value in tree.items():
            here = (*path, str(name))
            if isinstance(value, Mapping) and self._key_of(here) is None:
                yield from self._leaves(value, here)
            elif here != (self.block,) or value is not None:  # an empty block has no keys
                yield here, value

    def _key_of(self, path: KeyPath) -> str | None:
        """The key of ``meanings`` for a path in the file."""
        if self.block:
            if path[0] != self.block:
                return None
            path = path[1:]
        key = ".".join(path)
        if key in self.meanings:
            return key
        outside = key.removeprefix(f"{self.also_within}.") if self.also_within else key
        return outside if outside in self.meanings else None

    def _resolve_path(self, key: str, value: Any, folder: Path) -> Any:
        """The value, with paths relative to the working directory."""
        if isinstance(value, list) and key in self.paths:
            return [self._resolve_path(key, item, folder) for item in value]
        if not isinstance(value, str) or key not in self.paths | self.models:
            return value
        path = os.path.normpath(folder / Path(value).expanduser())
        named = key in self.models and not value.startswith((".", "/", "~")) and not value.endswith(SUFFIXES)
        if named and not Path(path).exists():
            return value
        if key in self.models and not os.path.isabs(path) and not path.startswith(".") and not Path(path).exists():
            path = os.path.join(".", path)  # otherwise a missing folder looks like a hub id
        return value if value.startswith(BUILTIN) else path


__all__ = ["FileVocabulary"]
