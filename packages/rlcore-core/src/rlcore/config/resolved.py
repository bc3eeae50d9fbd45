"""A validated configuration: its tables, the options of its components, and its text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from rlcore.config.layers import DEFAULT, nearest_origin
from rlcore.config.origins import KeyPath
from rlcore.config.schema import EnvironmentTable, HostedTable, RewardTable, RolloutTable, RunConfig, TrackersTable
from rlcore.config.write import toml_text
from rlcore.redaction import holds_mask, redacted

HOSTING = ("python", "variables", "servers")
"""Keys of every environment that rlcore reads. Those that are not set are left out of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A table that is validated by its own model: of a component, or an additional one of the trainer."""

    path: KeyPath
    options: BaseModel | None
    """None if it takes no options."""
    id: str | None = None
    """None if the table does not state the id."""
    keys: Collection[str] = ()
    """Keys of the same table that rlcore reads itself."""


def name_of(path: KeyPath) -> str:
    """The key of a component in `Resolved.options`; empty for rewards, trackers and the environments of a list."""
    first, *others = path
    if first in ("reward", "trackers") or (first == "environment" and others):
        return ""
    return {"rollout": "engine", "model": "builder"}.get(first, ".".join(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEnvironment:
    """An environment of a run, with its data and its rewards."""

    name: str
    """The name in a run with several environments; empty for the only one."""
    id: str
    options: BaseModel | None
    data_id: str
    """Id of the dataset."""
    data: BaseModel | None
    """Options of the dataset."""
    rewards: tuple[RewardTable, ...]
    reward_options: tuple[BaseModel | None, ...]
    path: KeyPath = ()
    """Where its tables are: ``("environment", "1")``; empty for the only environment of a run."""
    python: str | None = None
    """The other interpreter in which it runs; None for this one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the other interpreter."""
    servers: Sequence[str] = ()
    """The servers that run it; empty for this machine."""
    table: EnvironmentTable | None = None
    """The table in a run with several environments, which has the weight."""

    @property
    def is_hosted(self) -> bool:
        """Whether it runs in another interpreter or on another machine."""
        starts_it = "python" in getattr(type(self.options), "model_fields", ())  # the environment itself
        return (self.python is not None and not starts_it) or bool(self.servers)

    def at(self, *key: str) -> KeyPath:
        """The path of a key, such as ``environment.tools``, ``data.train`` or ``reward``."""
        if not self.path:
            return key
        return (*self.path, *(key[1:] if key[0] == "environment" else key))


def resolved_environments(
    config: RunConfig, options: Mapping[KeyPath, BaseModel | None]
) -> Iterator[ResolvedEnvironment]:
    """The environments of a run; none for a table without an id."""
    if not isinstance(config.environment, list):
        if config.environment.id:
            yield _resolved((), config.environment, "", config.data, config.reward, options)
        return
    for n, table in enumerate(config.environment):
        yield _resolved(("environment", str(n)), table, table.name, table.data, table.reward, options)


def _resolved(
    path: KeyPath,
    table: HostedTable,
    name: str,
    data: Mapping[str, Any],
    rewards: Sequence[RewardTable],
    options: Mapping[KeyPath, BaseModel | None],
) -> ResolvedEnvironment:
    return ResolvedEnvironment(
        name=name,
        id=table.id,
        options=options[path or ("environment",)],
        data_id=data.get("id") or table.id,
        data=options[*path, "data"],
        rewards=tuple(rewards),
        reward_options=tuple(options[*path, "reward", str(n)] for n in range(len(rewards))),
        path=path,
        python=table.python,
        variables=table.variables,
        servers=tuple(table.servers),
        table=table if isinstance(table, EnvironmentTable) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A validated configuration."""

    config: RunConfig
    components: Sequence[Component]
    """Everything that is validated by its own model."""
    options: Mapping[str, BaseModel | None]
    """The options of the components that have a name. The name of a component within another table is its dotted path,
    such as ``algorithm.loss``."""
    environments: tuple[ResolvedEnvironment, ...]
    """The environments with their data and rewards; empty without an environment."""
    origins: Mapping[KeyPath, str]
    """The origin of each value that is not a default."""
    recipe: str = ""
    """Id or file of the recipe; empty without a recipe."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The merged values of all layers, not validated. They resolve to an equal configuration."""

    @property
    def reward_options(self) -> tuple[BaseModel | None, ...]:
        """In the order of ``config.reward``. The rewards of several environments are in `environments`."""
        return tuple(one.options for one in self.components if one.path[0] == "reward")

    @property
    def tracker_options(self) -> Mapping[str, BaseModel | None]:
        """The options of each selected tracker."""
        return {one.path[1]: one.options for one in self.components if one.path[0] == "trackers"}

    def origin(self, path: KeyPath) -> str:
        """The origin of the value at ``path``; ``default`` when no layer sets it."""
        return nearest_origin(self.origins, path)

    def text(self) -> str:
        """The `tree` as TOML with origins.

        The id of a component within another table and the defaults that follow from it are written as comments unless a
        layer sets them, so that they are derived again when a later layer changes the id.
        """
        following: set[KeyPath] = set()
        for one in self.components:
            if "." in name_of(one.path):
                keys = () if one.options is None else type(one.options).model_fields
                following |= {(*one.path, key) for key in ("id", *keys)}
        unset = {path for path in following if self.origin(path) == DEFAULT}
        return toml_text(self.tree(), self.origin, following=unset)

    def tree(self) -> dict[str, Any]:
        """All values as plain data, including defaults and component tables. The result resolves to itself.

        Secrets are masked, and left out if they are defaults.
        """
        shown: dict[str, Any] = _without_defaults(redacted(self._tree()), (), self.origin)
        return shown

    def _tree(self) -> dict[str, Any]:
        tree = self.config.model_dump(mode="json")
        for table, model in (("rollout", RolloutTable), ("trackers", TrackersTable)):
            tree[table] = {key: value for key, value in tree[table].items() if key in model.model_fields}
        if isinstance(self.config.environment, list):
            del tree["data"]
        elif not self.config.environment.id:
            del tree["environment"]
        if not tree["reward"]:
            del tree["reward"]
        for one in self.components:
            *above, last = one.path
            outer: Any = tree
            for key in above:
                outer = outer[int(key)] if isinstance(outer, list) else outer[key]
            place: Any = int(last) if isinstance(outer, list) else last
            own = {} if one.options is None else one.options.model_dump(mode="json")
            if one.id is not None:
                known = outer[place] if isinstance(outer, list) or place in outer else {}
                kept = {key: known[key] for key in one.keys if key not in HOSTING or known[key]}
                own = {"id": one.id, **kept, **own}
            if own or len(one.path) == 1:
                outer[place] = own
        return tree


def _without_defaults(value: Any, path: KeyPath, origin: Callable[[KeyPath], str]) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_defaults(item, (*path, key), origin)
            for key, item in value.items()
            if not (holds_mask(item) and origin((*path, key)) == DEFAULT)
        }
    if isinstance(value, list):
        return [_without_defaults(item, (*path, str(index)), origin) for index, item in enumerate(value)]
    return value
