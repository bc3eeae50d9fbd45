"""Merge and validate layers: rlcore's own tables first, then each component's table with its own model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from rlcore.config.dialects import install_hint, nearest_dialect_key
from rlcore.config.fields import keys_of
from rlcore.config.layers import DEFAULT, KeyPath, Layer, Merged, leaves, merge_layers, nearest_origin
from rlcore.config.masking import check_secrets, masked_tree
from rlcore.config.messages import Problem
from rlcore.config.requirements import check_requirements
from rlcore.config.schema import ComponentTable, RewardTable, RolloutTable, RunConfig, Table, TrackersTable
from rlcore.config.tables import Model, TableValidator
from rlcore.config.write import toml_text
from rlcore.errors import UserError
from rlcore.specs import EngineSpec, TrainerSpec

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry
    from rlcore.specs import Spec

Others = TypeVar("Others", bound=BaseModel)
Purpose = Literal["run", "evaluation"]
COMPONENT_TABLES = {
    "environment": "environment",
    "trainer": "trainer",
    "strategy": "strategy",
    "executor": "executor",
}
"""Top-level tables with exactly one component, and the kinds of these components."""
TRAINING_ONLY = frozenset({"trainer", "strategy", "algorithm", "advantage", "loss"})
"""Kinds that an evaluation does not need. Their tables are checked only if their package is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A validated configuration."""

    config: RunConfig
    options: Mapping[str, BaseModel | None]
    """The validated model of each component's table; None for a component that takes no options. The key of a
    component within another table is its dotted path, such as ``algorithm.loss``."""
    reward_options: tuple[BaseModel | None, ...]
    """In the order of ``config.reward``."""
    tracker_options: Mapping[str, BaseModel | None]
    """The validated options of each selected tracker; None for a tracker that takes no options."""
    origins: Mapping[KeyPath, str]
    """The origin of each value that is not a default."""
    recipe: str = ""
    """Id or file of the recipe; empty without a recipe."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The merged values of all layers, not validated. They resolve to an equal configuration."""

    def origin(self, path: KeyPath) -> str:
        """The origin of the value at ``path``; ``default`` when no layer sets it."""
        return nearest_origin(self.origins, path)

    def text(self) -> str:
        """The `tree` as TOML with origins.

        Values that no layer sets and that are derived from others are written as comments, so that they are derived
        again when a later layer changes the others. A table's model lists such keys in its class attribute
        ``FOLLOWING``. The defaults of a component within another table are derived from its id.
        """
        following: set[KeyPath] = set()
        for table, options in self.options.items():
            keys = set(options.FOLLOWING if isinstance(options, Table) else ())
            if "." in table and options is not None:
                keys |= set(type(options).model_fields)
            following |= {(*table.split("."), *key.split(".")) for key in keys}
        unset = {path for path in following if self.origin(path) == DEFAULT}
        return toml_text(self.tree(), self.origin, following=unset)

    def tree(self) -> dict[str, Any]:
        """All values as plain data, including defaults and component tables. The result resolves to itself.

        Secrets are masked, and left out if they are defaults.
        """
        return masked_tree(self._tree(), self.origin)

    def _tree(self) -> dict[str, Any]:
        tree = self.config.model_dump(mode="json")
        rollout = dict(RolloutTable().model_dump())
        tree["rollout"] = {key: value for key, value in tree["rollout"].items() if key in rollout}
        tree["trackers"] = {
            "use": tree["trackers"]["use"],
            **{id: own for id, options in self.tracker_options.items() if (own := _dump(options))},
        }
        tree["reward"] = [
            {"id": table.id, "weight": table.weight, **_dump(options)}
            for table, options in zip(self.config.reward, self.reward_options, strict=True)
        ]
        if not self.config.environment.id:
            del tree["environment"]
        if not tree["reward"]:
            del tree["reward"]
        for table, options in self.options.items():
            if table not in tree and table in COMPONENT_TABLES:
                continue
            if table == "engine":
                if values := _dump(options):
                    tree["rollout"][self.config.rollout.engine] = values
            elif table == "builder":
                tree["model"]["builder"] = _dump(options)
            elif "." in table:
                outer, key = table.split(".")
                tree[outer][key] = {"id": tree[outer][key]["id"], **_dump(options)}
            elif table in COMPONENT_TABLES or table == "data":
                id = tree[table].get("id") or self.config.environment.id
                own = tree[table] if options is None else _dump(options)
                tree[table] = {**own, "id": id} if "id" in own else {"id": id, **own}
            else:
                tree[table] = _dump(options)
        return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards(Generic[Others]):
    """Rewards outside of a run."""

    tables: tuple[RewardTable, ...]
    options: tuple[BaseModel | None, ...]
    """In the order of ``tables``."""
    others: Others


def resolve(layers: Sequence[Layer], registry: Registry, *, recipe: str = "", purpose: Purpose = "run") -> Resolved:
    """Merge and validate layers. Imports configuration models, never components.

    Raises:
        ConfigError: all problems of the configuration.
        NotInstalledError: a requirement of the recipe is not installed.
    """
    merged = merge_layers(layers)
    check_requirements(merged)
    return _Resolver(merged, registry, recipe, purpose).resolve()


def resolve_rewards(merged: Merged, registry: Registry, others: type[Others]) -> Rewards[Others]:
    """Validate only the reward tables, and all other tables with the model ``others``.

    Raises:
        ConfigError: all problems in these tables.
    """
    check_secrets(merged.tree, merged)
    resolver = _Resolver(merged, registry, "", "run")
    resolver.validator.known = {"reward", "reward.0.id", "reward.0.weight"}
    tables, options = resolver.rewards()
    rest = resolver.validator.own(others, {key: value for key, value in merged.tree.items() if key != "reward"}, ())
    resolver.validator.finish("the rewards")
    assert isinstance(rest, others)
    return Rewards(tables=tables, options=options, others=rest)


class _Resolver:
    """Resolves one configuration: finds the model of each component and validates its table."""

    def __init__(self, merged: Merged, registry: Registry, recipe: str, purpose: Purpose) -> None:
        self.merged, self.registry, self.recipe, self.purpose = merged, registry, recipe, purpose
        self.validator = TableValidator(
            merged, nearest_dialect_key=partial(nearest_dialect_key, registry), hint=install_hint(registry)
        )
        self.validator.known |= set(keys_of(RunConfig))
        self.options: dict[str, BaseModel | None] = {}
        self.words: set[KeyPath] = set()
        """Paths of components that are given by their id alone."""

    def resolve(self) -> Resolved:
        tree = self.merged.tree
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
        config = self.validator.validate(RunConfig, own, ())
        for table, kind in COMPONENT_TABLES.items():
            self.options[table] = self._component((table,), kind, self._table(table), default=_default_id(table))
        self._data()
        if self._needs_environment() and tree.get("reward") == []:
            self.validator.bad(("reward",), [], "List should have at least 1 item")
        rewards = tuple(self._reward(index) for index in range(len(_tables(tree.get("reward")))))
        self._engine()
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
            reward_options=rewards,
            tracker_options=trackers,
            origins={
                (*path, "id") if path in self.words else path: origin
                for path, origin in explicit_origins(self.merged).items()
            },
            recipe=self.recipe,
            given=tree,
        )

    def rewards(self) -> tuple[tuple[RewardTable, ...], tuple[BaseModel | None, ...]]:
        tables = _tables(self.merged.tree.get("reward"))
        found = [self.validator.validate(RewardTable, table, ("reward", str(n))) for n, table in enumerate(tables)]
        return tuple(found), tuple(self._reward(index) for index in range(len(tables)))

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

    def _data(self) -> None:
        environment = self._table("environment").get("id")
        explicit = "id" in self._table("data")
        if not explicit and not self._needs_environment() and "environment" not in self.merged.tree:
            reason = "required if there is no environment: data.id=chat reads files of conversations"
            self.validator.problems.append(
                Problem(kind="missing key", path="data.id", origin="no layer sets it", reason=reason)
            )
            return
        if not explicit and self._spec("environment", str(environment), (), report=False) is None:
            return  # report only the missing environment, not the data that defaults to it
        if not explicit and ":" in str(environment):
            reason = "an environment given as an import path has no default dataset: set data.id=file.py:Class"
            self.validator.not_found(("data", "id"), reason)
            return
        default = environment if isinstance(environment, str) else None
        self.options["data"] = self._component(("data",), "dataset", self._table("data"), default)
        self.validator.known.add("data.id")

    def _reward(self, index: int) -> BaseModel | None:
        table = _tables(self.merged.tree["reward"])[index]
        path = ("reward", str(index))
        self.validator.known |= {f"reward.{index}.{key}" for key in RewardTable.model_fields}
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
        table = self._table("rollout")
        engine = table.get("engine", RolloutTable().engine)
        if isinstance(engine, str):
            spec = self._spec("engine", engine, ("rollout", "engine"))
            own = table.get(engine, {})
            if not isinstance(own, dict):
                self.validator.bad(("rollout", engine), own, f"needs a table with options of the engine {engine!r}")
            elif spec is not None:
                model = self._model(("rollout", engine), self.registry.config_model, "engine", engine)
                self.options["engine"] = self.validator.own(model, own, ("rollout", engine))
        for key, value in table.items():
            if key in RolloutTable.model_fields or key == engine:
                continue
            if not isinstance(value, dict) or self._spec("engine", key, (), report=False) is None:
                self.validator.unknown.append(("rollout", key))

    def _trackers(self) -> dict[str, BaseModel | None]:
        table = self._table("trackers")
        use = table.get("use", TrackersTable().use)
        use = [use] if isinstance(use, str) else use
        found: dict[str, BaseModel | None] = {}
        for id in use if isinstance(use, list) else []:
            if not isinstance(id, str):
                continue
            spec = self._spec("tracker", id, ("trackers", "use"))
            own = table.get(id, {})
            if not isinstance(own, dict):
                self.validator.bad(("trackers", id), own, f"needs a table with options of the tracker {id!r}")
            elif spec is not None:
                model = self._model(("trackers", id), self.registry.config_model, "tracker", id)
                found[id] = self.validator.own(model, own, ("trackers", id))
        for key, value in table.items():
            if key == "use" or (isinstance(use, list) and key in use):
                continue
            if not isinstance(value, dict) or self._spec("tracker", key, (), report=False) is None:
                self.validator.unknown.append(("trackers", key))
        return found

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


def _dump(options: BaseModel | None) -> dict[str, Any]:
    return options.model_dump(mode="json") if options is not None else {}


def _tables(value: object) -> list[dict[str, Any]]:
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def _default_id(table: str) -> str | None:
    default = RunConfig.model_fields[table].get_default()
    return default.id if isinstance(default, ComponentTable) else None
