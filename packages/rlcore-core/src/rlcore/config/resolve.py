"""Find the model of each table, validate it, and join the results: rlcore's own tables, then those of components."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from rlcore.config.adapters import install_hint, nearest_adapter_key
from rlcore.config.fields import keys_of
from rlcore.config.layers import Layer, leaves
from rlcore.config.merge import Merged, merge_environments, name_problems, weight_problems
from rlcore.config.messages import Problem
from rlcore.config.origins import KeyPath
from rlcore.config.requirements import check_requirements
from rlcore.config.resolved import HOSTING, Component, Resolved, name_of, resolved_environments
from rlcore.config.schema import (
    AUTO,
    ComponentTable,
    EnvironmentTable,
    RewardTable,
    RolloutTable,
    RunConfig,
    SandboxTable,
    TrackersTable,
)
from rlcore.config.tables import Model, TableValidator, check_secrets
from rlcore.errors import UserError
from rlcore.specs import AlgorithmSpec, EngineSpec, TrainerSpec

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry
    from rlcore.specs import Spec

Others = TypeVar("Others", bound=BaseModel)
Purpose = Literal["run", "evaluation", "serving"]
TRAINING_ONLY = frozenset({"trainer", "strategy", "algorithm", "advantage", "loss", "preference", "preference_loss"})
"""Kinds that an evaluation does not need. Their tables are checked only if their package is installed."""
NEEDED = "List should have at least 1 item"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards(Generic[Others]):
    """Rewards outside of a run."""

    environments: Mapping[str, tuple[tuple[RewardTable, ...], tuple[BaseModel | None, ...]]]
    """The tables and their options by the name of the environment; the only one of a run has an empty name."""
    others: Others


def resolve(layers: Sequence[Layer], registry: Registry, *, recipe: str = "", purpose: Purpose = "run") -> Resolved:
    """Merge and validate layers. Imports configuration models, never components.

    Raises:
        ConfigError: all problems of the configuration.
        NotInstalledError: a requirement of the recipe is not installed.
    """
    merged = merge_environments(layers)
    check_requirements(merged)
    return _Resolver(merged, registry, recipe, purpose).resolve()


def resolve_rewards(layers: Sequence[Layer], registry: Registry, others: type[Others]) -> Rewards[Others]:
    """Validate only the reward tables, and all other tables with the model ``others``.

    Raises:
        ConfigError: all problems in these tables.
    """
    merged = merge_environments(layers)
    check_secrets(merged.tree, merged)
    resolver = _Resolver(merged, registry, "", "run")
    resolver.validator.known = {"reward", *(f"reward.0.{key}" for key in RewardTable.model_fields)}
    several = merged.tree.get("environment")
    places: dict[str, KeyPath] = {"": ("reward",)}
    if isinstance(several, list):
        places = {str(table.get("name")): ("environment", str(n), "reward") for n, table in enumerate(_tables(several))}
    found = {name: resolver.rewards(path) for name, path in places.items()}
    tables = {key: value for key, value in merged.tree.items() if key not in ("reward", "environment")}
    rest = resolver.validator.own(others, tables, ())
    resolver.validator.finish("the rewards")
    assert isinstance(rest, others)
    return Rewards(environments=found, others=rest)


class _Resolver:
    """Resolves one configuration: finds the model of each component and validates its table."""

    def __init__(self, merged: Merged, registry: Registry, recipe: str, purpose: Purpose) -> None:
        self.merged, self.registry, self.recipe, self.purpose = merged, registry, recipe, purpose
        self.validator = TableValidator(
            merged, nearest_adapter_key=partial(nearest_adapter_key, registry), hint=install_hint(registry)
        )
        self.validator.known |= set(keys_of(RunConfig))
        self.components: list[Component] = []
        self.options: dict[str, BaseModel | None] = {}
        """The options of the components that have a name."""
        self.words: set[KeyPath] = set()
        """Paths of components that are given by their id alone."""

    def resolve(self) -> Resolved:
        tree = self.merged.tree
        self._host_environments()
        unread = {*TRAINING_ONLY, "trackers"} if self.purpose != "run" else frozenset()
        check_secrets({key: value for key, value in tree.items() if key not in unread}, self.merged)
        extra = self._trainer_tables()
        config = self.validator.validate(RunConfig, self._own_tables(), ())
        several = isinstance(tree.get("environment"), list)
        if not several:
            self._component(("environment",), "environment", self._table("environment"), keys=HOSTING)
        for table in ("trainer", "strategy", "sampler"):
            self._component((table,), table, self._table(table), _default_id(table))
        if several:
            self._environments(config)
        elif self.purpose != "serving":
            self._data(("data",), self._table("data"), self._table("environment").get("id"))
            self._rewards(("reward",), tree.get("reward"))
        self._engine()
        self._sandbox()
        self._trackers()
        self._builder()
        if unknown := [table for table in tree if table not in RunConfig.model_fields and table not in extra]:
            self.validator.unknown += [(table,) for table in unknown]
            self.validator.trainers = _trainers_by_table(self.registry)
        if "algorithm" not in extra and isinstance(tree.get("algorithm"), dict):
            self.validator.unknown += [("algorithm", key) for key in tree["algorithm"]]
        self.validator.finish()
        assert isinstance(config, RunConfig)
        return Resolved(
            config=config,
            components=self.components,
            options=self.options,
            environments=tuple(resolved_environments(config, {one.path: one.options for one in self.components})),
            origins={
                (*path, "id") if path in self.words else path: origin
                for path, origin in explicit_origins(self.merged).items()
            },
            recipe=self.recipe,
            given=tree,
        )

    def _own_tables(self) -> dict[str, Any]:
        """The tables of `RunConfig`, complete where a key is not needed or has a default."""
        own = {key: value for key, value in self.merged.tree.items() if key in RunConfig.model_fields}
        for table in ("environment", "trainer", "strategy", "sampler"):
            if isinstance(own.get(table), dict) and (default := _default_id(table)):  # a table with only other keys
                own[table] = {"id": default, **own[table]}
        if not self._needs_environment():
            own = {"environment": {"id": ""}, "reward": [], **own}
        if self._brings_its_model():
            own["model"] = {"path": "", **self._table("model")}
        if isinstance(own.get("environment"), list) or not self._needs_rewards():
            own.setdefault("reward", [])
        return own

    def rewards(self, path: KeyPath) -> tuple[tuple[RewardTable, ...], tuple[BaseModel | None, ...]]:
        """The reward tables at ``path`` with their options."""
        value: Any = self.merged.tree
        for key in path:
            value = value[int(key)] if isinstance(value, list) else value.get(key) if isinstance(value, dict) else None
        found = [self.validator.validate(RewardTable, table, (*path, str(n))) for n, table in enumerate(_tables(value))]
        before = len(self.components)
        self._rewards(path, value, required=False)
        return tuple(found), tuple(one.options for one in self.components[before:])

    def _rewards(self, path: KeyPath, value: object, *, required: bool = True) -> None:
        """Validate the rewards at ``path``."""
        if required and value == [] and self._needs_rewards():
            self.validator.bad(path, [], NEEDED)
        for n, table in enumerate(_tables(value)):
            place = (*path, str(n))
            self.validator.known |= {".".join((*place, key)) for key in RewardTable.model_fields}
            id, keys = table.get("id"), ("weight", "servers")
            if not table.get("servers"):
                self._component(place, "reward", table, keys=keys)
                continue
            for key in table.keys() - {"id", *keys}:
                reason = "belongs to the command rlcore serve reward, because the servers have the options"
                self.validator.bad((*place, key), table[key], reason)
            if isinstance(id, str) and self._spec("reward", id, (*place, "id")) is not None:
                self._add(place, None, id=id, keys=keys)

    def _environments(self, config: RunConfig | None) -> None:
        """Validate the tables of several environments."""
        given = self.merged.tree["environment"]
        self.validator.problems += name_problems(self.merged)
        self.validator.problems += weight_problems(self.merged, config.mixture if config is not None else [])
        if not given:
            self.validator.bad(("environment",), [], NEEDED)
        reserved = tuple(key for key in EnvironmentTable.model_fields if key != "id")
        for n, table in enumerate(_tables(given)):
            path, data = ("environment", str(n)), table.get("data")
            self._component(path, "environment", table, keys=reserved)
            self._data((*path, "data"), data if isinstance(data, dict) else {}, table.get("id"))
            self._rewards((*path, "reward"), table.get("reward", []))

    def _trainer_tables(self) -> set[str]:
        """Validate the additional tables of the selected trainer, and return their names."""
        trainer = self._table("trainer").get("id", _default_id("trainer"))
        spec = self._spec("trainer", str(trainer), ("trainer", "id"), report=False)
        tables: dict[str, str] = dict(spec.tables) if isinstance(spec, TrainerSpec) else {}
        for table, target in tables.items():
            model = self._model((table,), self.registry.load_for, "trainer", spec, target)
            self._add((table,), self.validator.own(model, self._table(table), (table,)))
            self._components_within(table, model)
        if spec is None:  # which tables are right cannot be known: the unknown trainer is the mistake to show
            return {key for key, value in self.merged.tree.items() if isinstance(value, dict)} | {"algorithm"}
        self.validator.known |= set(tables)
        return set(tables)

    def _table(self, name: str) -> dict[str, Any]:
        value = self.merged.tree.get(name)
        return value if isinstance(value, dict) else {}

    def _add(
        self, path: KeyPath, options: BaseModel | None, *, id: str | None = None, keys: Collection[str] = ()
    ) -> None:
        """Keep the options of a component."""
        self.components.append(Component(path=path, options=options, id=id, keys=keys))
        if name := name_of(path):
            self.options[name] = options

    def _component(
        self,
        path: KeyPath,
        kind: str,
        table: Mapping[str, Any],
        default: str | None = None,
        keys: Collection[str] = (),
    ) -> None:
        """Validate the table of a component, except for ``keys``, which rlcore reads itself."""
        if name := name_of(path):
            self.options[name] = None
        id = default if table.get("id") is None else table["id"]
        spec = self._spec(kind, id, (*path, "id")) if isinstance(id, str) else None  # RunConfig reports other types
        if spec is None or not isinstance(id, str):
            return
        model = self._model(path, self.registry.config_model, kind, spec.id)
        if model == "missing":
            return
        own = {key: value for key, value in table.items() if key not in ("id", *keys)}
        if model is not None and "id" in model.model_fields:
            own["id"] = id
        if model is not None:  # an environment that starts the other interpreter itself
            own |= {key: table[key] for key in HOSTING if key in table and key in model.model_fields}
        self._add(path, self.validator.own(model, own, path), id=id, keys=keys)

    def _components_within(self, table: str, model: Model) -> None:
        """Validate the tables of components within a table; its model lists them in its attribute ``COMPONENTS``."""
        for key, kind in getattr(model, "COMPONENTS", {}).items():
            value = self._table(table).get(key, {})
            if isinstance(value, str):
                self.words.add((table, key))
                value = {"id": value}
            if isinstance(value, dict) and isinstance(model, type):
                default = model.model_fields[key].default
                self._component((table, key), kind, value, getattr(default, "id", None))

    def _data(self, path: KeyPath, table: Mapping[str, Any], environment: object) -> None:
        """Validate the options of the dataset at ``path``, whose id defaults to that of its environment."""
        explicit = table.get("id") is not None
        if not explicit and not self._needs_environment() and "environment" not in self.merged.tree:
            reason = "required if there is no environment: data.id=chat reads files of conversations"
            self.validator.problems.append(
                Problem(kind="missing key", path="data.id", origin="no layer sets it", reason=reason)
            )
            return
        if not explicit and self._spec("environment", str(environment), (), report=False) is None:
            return  # report only the missing environment, not the data that defaults to it
        if not explicit and ":" in str(environment) and self.registry.offer("environment", str(environment)) is None:
            key = ".".join((*path, "id"))
            reason = f"an environment given as an import path has no default dataset: set {key}=file.py:Class"
            self.validator.not_found((*path, "id"), reason)
            return
        self.validator.known.add(".".join((*path, "id")))
        self._component(path, "dataset", table, environment if isinstance(environment, str) else None)

    def _engine(self) -> None:
        engine = self._table("rollout").get("engine", RolloutTable().engine)
        self._selected("rollout", "engine", [engine] if isinstance(engine, str) else [], RolloutTable)

    def _selected(self, table: str, kind: str, ids: Sequence[str], own: type[BaseModel]) -> None:
        """Validate the tables of the selected components, which are named by their ids beside a table's own keys."""
        given = self._table(table)
        for id in ids:
            spec, values = self._spec(kind, id, (table, "use" if kind == "tracker" else kind)), given.get(id, {})
            if not isinstance(values, dict):
                self.validator.bad((table, id), values, f"needs a table with options of the {kind} {id!r}")
            elif spec is not None:
                model = self._model((table, id), self.registry.config_model, kind, id)
                self._add((table, id), self.validator.own(model, values, (table, id)))
        for key, value in given.items():
            known = key in own.model_fields or key in ids
            if not known and not (isinstance(value, dict) and self._spec(kind, key, (), report=False) is not None):
                self.validator.unknown.append((table, key))

    def _sandbox(self) -> None:
        """Validate the keys of the selected sandbox, which stand beside the limits; ``auto`` has none."""
        table = self._table("sandbox")
        own = {key: value for key, value in table.items() if key not in SandboxTable.model_fields}
        id = table.get("id", AUTO)
        if id == AUTO:
            self.validator.unknown += [("sandbox", key) for key in own]
        elif isinstance(id, str) and (spec := self._spec("sandbox", id, ("sandbox", "id"))) is not None:
            model = self._model(("sandbox",), self.registry.config_model, "sandbox", spec.id)
            limits = tuple(key for key in SandboxTable.model_fields if key != "id")
            self._add(("sandbox",), self.validator.own(model, own, ("sandbox",)), id=id, keys=limits)

    def _trackers(self) -> None:
        use = self._table("trackers").get("use", TrackersTable().use)
        ids = use if isinstance(use, list) else [use]
        self._selected("trackers", "tracker", [id for id in ids if isinstance(id, str)], TrackersTable)

    def _brings_its_model(self) -> bool:
        """Whether nothing is trained, and the engine needs no ``model.path``."""
        engine = self._table("rollout").get("engine")
        spec = self._spec("engine", engine, (), report=False) if isinstance(engine, str) else None
        return self.purpose != "run" and isinstance(spec, EngineSpec) and spec.speaks == "messages"

    def _needs_environment(self) -> bool:
        """Whether an environment is required."""
        if self.purpose != "run":
            return self.purpose == "evaluation"
        id = self._table("trainer").get("id", _default_id("trainer"))
        spec = self._spec("trainer", str(id), (), report=False)
        return not isinstance(spec, TrainerSpec) or spec.needs_environment

    def _needs_rewards(self) -> bool:
        """Whether a reward is required. An advantage may read none, but an evaluation always measures."""
        chosen = next((one.id for one in self.components if one.path == ("algorithm", "advantage")), None)
        spec = None if chosen is None else self._spec("advantage", chosen, (), report=False)
        unread = isinstance(spec, AlgorithmSpec) and not spec.needs_rewards
        return self._needs_environment() and (self.purpose == "evaluation" or not unread)

    def _builder(self) -> None:
        """Validate the options of a ``builtin:NAME`` model with the builder's own model."""
        path = self._table("model").get("path")
        options = self._table("model").get("builder", {})
        if isinstance(path, str) and path.startswith("builtin:") and not self._brings_its_model():
            spec = self._spec("model", path.removeprefix("builtin:"), ("model", "path"))
            if spec is not None and isinstance(options, dict):
                model = self._model(("model", "builder"), self.registry.config_model, "model", spec.id)
                self._add(("model", "builder"), self.validator.own(model, options, ("model", "builder")))

    def _spec(self, kind: str, id: str, path: KeyPath, *, report: bool = True) -> Spec | None:
        try:
            return self.registry.spec(kind, id)
        except UserError as error:
            training_only = self.purpose != "run" and kind in TRAINING_ONLY
            if report and not training_only:
                self.validator.not_found(path, str(error), repr(id))
            return None

    def _model(self, path: KeyPath, load: Callable[..., Any], *arguments: object) -> Model:
        """The component's model. If it cannot be imported, report a problem and return ``missing``."""
        try:
            return load(*arguments)  # type: ignore[no-any-return]
        except UserError as error:
            if not (self.purpose != "run" and path[0] in TRAINING_ONLY):
                self.validator.not_found(path, str(error))
            return "missing"

    def _host_environments(self) -> None:
        """Tell the registry which import paths of environments belong to another interpreter."""
        tables = self.merged.tree.get("environment")
        for table in tables if isinstance(tables, list) else [tables]:
            if isinstance(table, dict) and isinstance(id := table.get("id"), str):
                python, given = table.get("python"), table.get("variables")
                variables = {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
                if isinstance(python, str):
                    self.registry.host(id, python, variables)


def explicit_origins(merged: Merged) -> dict[KeyPath, str]:
    """The origin of each value that a layer sets."""
    return {path: merged.origin(path) for path, value in leaves(merged.tree) if value != {}}


def _trainers_by_table(registry: Registry) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for spec in registry.specs("trainer"):
        for table, _ in spec.tables if isinstance(spec, TrainerSpec) else ():
            found.setdefault(table, []).append(spec.id)
    return found


def _tables(value: object) -> list[dict[str, Any]]:
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def _default_id(table: str) -> str | None:
    default = RunConfig.model_fields[table].get_default()
    return default.id if isinstance(default, ComponentTable) else None
