"""Merge and validate layers: rlcore's own tables first, then each component's table with its own model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from rlcore.config.adapters import install_hint, nearest_adapter_key
from rlcore.config.environments import (
    HOSTING,
    ResolvedEnvironment,
    host_environments,
    merge_environments,
    name_problems,
    only_environment,
    weight_problems,
    without_reserved,
)
from rlcore.config.fields import keys_of
from rlcore.config.layers import KeyPath, Layer, Merged, leaves
from rlcore.config.masking import check_secrets
from rlcore.config.messages import Problem
from rlcore.config.requirements import check_requirements
from rlcore.config.resolved import COMPONENT_TABLES, Resolved
from rlcore.config.schema import (
    AUTO,
    ComponentTable,
    RewardTable,
    RolloutTable,
    RunConfig,
    SandboxTable,
    TrackersTable,
)
from rlcore.config.tables import Model, TableValidator
from rlcore.errors import UserError
from rlcore.specs import EngineSpec, TrainerSpec

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry
    from rlcore.specs import Spec

Others = TypeVar("Others", bound=BaseModel)
Purpose = Literal["run", "evaluation"]
TRAINING_ONLY = frozenset({"trainer", "strategy", "algorithm", "advantage", "loss"})
"""Kinds that an evaluation does not need. Their tables are checked only if their package is installed."""


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
    resolver.validator.known = {"reward", "reward.0.id", "reward.0.weight"}
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
        self.options: dict[str, BaseModel | None] = {}
        self.words: set[KeyPath] = set()
        """Paths of components that are given by their id alone."""

    def resolve(self) -> Resolved:
        tree = self.merged.tree
        host_environments(tree, self.registry)
        unread = {*TRAINING_ONLY, "trackers"} if self.purpose == "evaluation" else frozenset()
        check_secrets({key: value for key, value in tree.items() if key not in unread}, self.merged)
        extra = self._trainer_tables()
        own = {key: value for key, value in tree.items() if key in RunConfig.model_fields}
        for table in COMPONENT_TABLES:  # a table that only has other keys keeps the default component
            if isinstance(own.get(table), dict) and (default := _default_id(table)):
                own[table] = {"id": default, **own[table]}
        if not self._needs_environment():
            own = {"environment": {"id": ""}, "reward": [], **own}
        if self._brings_its_model():
            own["model"] = {"path": "", **self._table("model")}
        if several := isinstance(own.get("environment"), list):
            own.setdefault("reward", [])
        config = self.validator.validate(RunConfig, own, ())
        for table, kind in COMPONENT_TABLES.items():
            if table != "environment" or not several:
                values = self._table(table)
                if table == "environment":
                    values = {key: value for key, value in values.items() if key not in HOSTING}
                self.options[table] = self._component((table,), kind, values, default=_default_id(table))
        rewards: tuple[BaseModel | None, ...] = ()
        if several:
            environments = self._environments(config)
        else:
            self.options["data"] = self._data(("data",), self._table("data"), self._table("environment").get("id"))
            self._check_rewards(("reward",), tree.get("reward"))
            rewards = self._reward_options(("reward",))
            environments = only_environment(config, self.options, rewards)
        self._engine()
        self._sandbox()
        trackers = self._trackers()
        self._builder()
        for table in tree:
            if table not in RunConfig.model_fields and table not in extra:
                self.validator.unknown.append((table,))
        if "algorithm" not in extra and isinstance(tree.get("algorithm"), dict):
            self.validator.unknown += [("algorithm", key) for key in tree["algorithm"]]
        self.validator.finish()
        assert isinstance(config, RunConfig)
        return Resolved(
            config=config,
            options=self.options,
            environments=environments,
            reward_options=rewards,
            tracker_options=trackers,
            origins={
                (*path, "id") if path in self.words else path: origin
                for path, origin in explicit_origins(self.merged).items()
            },
            recipe=self.recipe,
            given=tree,
        )

    def rewards(self, path: KeyPath) -> tuple[tuple[RewardTable, ...], tuple[BaseModel | None, ...]]:
        """The reward tables at ``path`` with their options."""
        tables = enumerate(_tables(self._value(path)))
        found = [self.validator.validate(RewardTable, table, (*path, str(n))) for n, table in tables]
        return tuple(found), self._reward_options(path)

    def _reward_options(self, path: KeyPath) -> tuple[BaseModel | None, ...]:
        return tuple(self._reward(table, (*path, str(n))) for n, table in enumerate(_tables(self._value(path))))

    def _value(self, path: KeyPath) -> Any:
        value: Any = self.merged.tree
        for key in path:
            value = value[int(key)] if isinstance(value, list) else value.get(key) if isinstance(value, dict) else None
        return value

    def _environments(self, config: RunConfig | None) -> tuple[ResolvedEnvironment, ...]:
        """Validate the tables of several environments."""
        self.validator.problems += name_problems(self.merged)
        tables = config.environment if config is not None and isinstance(config.environment, list) else []
        self.validator.problems += weight_problems(self.merged, tables)
        if self.merged.tree["environment"] == []:
            self.validator.bad(("environment",), [], "List should have at least 1 item")
        found = []
        for n, given in enumerate(_tables(self.merged.tree["environment"])):
            path = ("environment", str(n))
            options = self._component(path, "environment", without_reserved(given), None)
            id = given.get("id")
            own = given.get("data", {})
            data = self._data((*path, "data"), own if isinstance(own, dict) else {}, id)
            self._check_rewards((*path, "reward"), given.get("reward", []))
            reward_options = self._reward_options((*path, "reward"))
            if n < len(tables):
                environment = ResolvedEnvironment(
                    name=tables[n].name,
                    id=tables[n].id,
                    options=options,
                    data_id=tables[n].data.get("id", tables[n].id),
                    data=data,
                    rewards=tuple(tables[n].reward),
                    reward_options=reward_options,
                    path=path,
                    python=tables[n].python,
                    variables=tables[n].variables,
                    table=tables[n],
                )
                found.append(environment)
        return tuple(found)

    def _check_rewards(self, path: KeyPath, value: object) -> None:
        if self._needs_environment() and value == []:
            self.validator.bad(path, [], "List should have at least 1 item")

    def _trainer_tables(self) -> set[str]:
        """Validate the additional tables of the selected trainer, and return their names."""
        trainer = self._table("trainer").get("id", _default_id("trainer"))
        spec = self._spec("trainer", str(trainer), ("trainer", "id"), report=False)
        tables: dict[str, str] = dict(spec.tables) if isinstance(spec, TrainerSpec) else {}
        for table, target in tables.items():
            model = self._model((table,), self.registry.load_for, "trainer", spec, target)
            self.options[table] = self.validator.own(model, self._table(table), (table,))
            self._components_within(table, model)
        if spec is None:  # which tables are right cannot be known: the unknown trainer is the mistake to show
            return {key for key, value in self.merged.tree.items() if isinstance(value, dict)} | {"algorithm"}
        self.validator.known |= set(tables)
        return set(tables)

    def _table(self, name: str) -> dict[str, Any]:
        value = self.merged.tree.get(name)
        return value if isinstance(value, dict) else {}

    def _components_within(self, table: str, model: Model) -> None:
        """Validate the tables of components within a table; its model lists them in its attribute ``COMPONENTS``."""
        whole = self.options[table]
        for key, kind in getattr(model, "COMPONENTS", {}).items():
            part = getattr(whole, key, None)  # None where the table has mistakes of its own: take what was written
            value = self._table(table).get(key, {})
            if isinstance(value, str):
                self.words.add((table, key))
                value = {"id": value}
            value = value if part is None else {"id": part.id, **part.own}
            if isinstance(value, dict):
                default = getattr(model.model_fields[key].default, "id", None) if isinstance(model, type) else None
                self.options[f"{table}.{key}"] = self._component((table, key), kind, value, default)

    def _component(self, path: KeyPath, kind: str, value: Mapping[str, Any], default: str | None) -> BaseModel | None:
        id = value.get("id", default)
        if not isinstance(id, str):
            return None  # RunConfig has already said so
        spec = self._spec(kind, id, (*path, "id"))
        if spec is None:
            return None
        model = self._model(path, self.registry.config_model, kind, spec.id)
        return self.validator.own(model, _without_id(model, {"id": id, **value}), path)

    def _data(self, path: KeyPath, table: Mapping[str, Any], environment: object) -> BaseModel | None:
        """The options of the dataset at ``path``, whose id defaults to that of its environment."""
        explicit = "id" in table
        if not explicit and not self._needs_environment() and "environment" not in self.merged.tree:
            reason = "required if there is no environment: data.id=chat reads files of conversations"
            self.validator.problems.append(
                Problem(kind="missing key", path="data.id", origin="no layer sets it", reason=reason)
            )
            return None
        if not explicit and self._spec("environment", str(environment), (), report=False) is None:
            return None  # report only the missing environment, not the data that defaults to it
        if not explicit and ":" in str(environment) and self.registry.offer("environment", str(environment)) is None:
            key = ".".join((*path, "id"))
            reason = f"an environment given as an import path has no default dataset: set {key}=file.py:Class"
            self.validator.not_found((*path, "id"), reason)
            return None
        self.validator.known.add(".".join((*path, "id")))
        return self._component(path, "dataset", table, environment if isinstance(environment, str) else None)

    def _reward(self, table: Mapping[str, Any], path: KeyPath) -> BaseModel | None:
        self.validator.known |= {".".join((*path, key)) for key in RewardTable.model_fields}
        id = table.get("id")
        if not isinstance(id, str):
            return None
        spec = self._spec("reward", id, (*path, "id"))
        if spec is None:
            return None
        model = self._model(path, self.registry.config_model, "reward", id)
        own = {key: item for key, item in table.items() if key != "weight"}
        return self.validator.own(model, _without_id(model, own), path)

    def _engine(self) -> None:
        engine = self._table("rollout").get("engine", RolloutTable().engine)
        ids = [engine] if isinstance(engine, str) else []
        for options in self._selected("rollout", "engine", ids, RolloutTable).values():
            self.options["engine"] = options

    def _selected(self, table: str, kind: str, ids: Sequence[str], own: type[BaseModel]) -> dict[str, BaseModel | None]:
        """Validate the tables of the selected components, which are named by their ids beside a table's own keys."""
        given, found = self._table(table), dict[str, BaseModel | None]()
        for id in ids:
            spec, values = self._spec(kind, id, (table, "use" if kind == "tracker" else kind)), given.get(id, {})
            if not isinstance(values, dict):
                self.validator.bad((table, id), values, f"needs a table with options of the {kind} {id!r}")
            elif spec is not None:
                model = self._model((table, id), self.registry.config_model, kind, id)
                found[id] = self.validator.own(model, values, (table, id))
        for key, value in given.items():
            known = key in own.model_fields or key in ids
            if not known and not (isinstance(value, dict) and self._spec(kind, key, (), report=False) is not None):
                self.validator.unknown.append((table, key))
        return found

    def _sandbox(self) -> None:
        """Validate the keys of the selected sandbox, which stand beside the limits; ``auto`` has none."""
        table = self._table("sandbox")
        own = {key: value for key, value in table.items() if key not in SandboxTable.model_fields}
        id = table.get("id", AUTO)
        if id == AUTO:
            self.validator.unknown += [("sandbox", key) for key in own]
        elif isinstance(id, str) and (spec := self._spec("sandbox", id, ("sandbox", "id"))) is not None:
            model = self._model(("sandbox",), self.registry.config_model, "sandbox", spec.id)
            self.options["sandbox"] = self.validator.own(model, own, ("sandbox",))

    def _trackers(self) -> dict[str, BaseModel | None]:
        use = self._table("trackers").get("use", TrackersTable().use)
        ids = use if isinstance(use, list) else [use]
        return self._selected("trackers", "tracker", [id for id in ids if isinstance(id, str)], TrackersTable)

    def _brings_its_model(self) -> bool:
        """Whether this is an evaluation with an engine that needs no ``model.path``."""
        engine = self._table("rollout").get("engine")
        spec = self._spec("engine", engine, (), report=False) if isinstance(engine, str) else None
        return self.purpose == "evaluation" and isinstance(spec, EngineSpec) and spec.speaks == "messages"

    def _needs_environment(self) -> bool:
        """Whether an environment and a reward are required."""
        id = self._table("trainer").get("id", _default_id("trainer"))
        spec = self._spec("trainer", str(id), (), report=False)
        return self.purpose == "evaluation" or not isinstance(spec, TrainerSpec) or spec.needs_environment

    def _builder(self) -> None:
        """Validate the options of a ``builtin:NAME`` model with the builder's own model."""
        path = self._table("model").get("path")
        options = self._table("model").get("builder", {})
        if isinstance(path, str) and path.startswith("builtin:") and not self._brings_its_model():
            spec = self._spec("model", path.removeprefix("builtin:"), ("model", "path"))
            if spec is not None and isinstance(options, dict):
                model = self._model(("model", "builder"), self.registry.config_model, "model", spec.id)
                self.options["builder"] = self.validator.own(model, options, ("model", "builder"))

    def _spec(self, kind: str, id: str, path: KeyPath, *, report: bool = True) -> Spec | None:
        try:
            return self.registry.spec(kind, id)
        except UserError as error:
            training_only = self.purpose == "evaluation" and kind in TRAINING_ONLY
            if report and not training_only:
                self.validator.not_found(path, str(error), repr(id))
            return None

    def _model(self, path: KeyPath, load: Callable[..., Any], *arguments: object) -> Model:
        """The component's model. If it cannot be imported, report a problem and return ``missing``."""
        try:
            return load(*arguments)  # type: ignore[no-any-return]
        except UserError as error:
            if not (self.purpose == "evaluation" and path[0] in TRAINING_ONLY):
                self.validator.not_found(path, str(error))
            return "missing"


def explicit_origins(merged: Merged) -> dict[KeyPath, str]:
    """The origin of each value that a layer sets."""
    return {path: merged.origin(path) for path, value in leaves(merged.tree) if value != {}}


def _without_id(model: Model, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without ``id``, which rlcore reads itself, unless the model has a field ``id``."""
    keep = isinstance(model, type) and "id" in model.model_fields
    return {key: value for key, value in values.items() if key != "id" or keep}


def _tables(value: object) -> list[dict[str, Any]]:
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def _default_id(table: str) -> str | None:
    default = RunConfig.model_fields[table].get_default()
    return default.id if isinstance(default, ComponentTable) else None


__all__ = ["Resolved"]
