"""Configuration layers from recipes, files and overrides. Each value has an origin."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from rlcore.config.messages import Problem, ProblemsError
from rlcore.config.origins import KeyPath, check_overrides, check_tree, parse_toml, parse_yaml, read_text
from rlcore.plugins.registry import Registry, asked
from rlcore.redaction import remember_arguments, remember_secrets

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


def nearest_origin(origins: Mapping[KeyPath, str], path: KeyPath) -> str:
    """The origin of ``path``, or of the nearest parent that has one."""
    for length in range(len(path), 0, -1):
        if path[:length] in origins:
            return origins[path[:length]]
    return DEFAULT


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
