"""A validated configuration, and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from rlcore.config.environments import ResolvedEnvironment
from rlcore.config.layers import DEFAULT, KeyPath, nearest_origin
from rlcore.config.masking import masked_tree
from rlcore.config.schema import RewardTable, RolloutTable, RunConfig, SandboxTable
from rlcore.config.write import toml_text

COMPONENT_TABLES = {
    "environment": "environment",
    "trainer": "trainer",
    "strategy": "strategy",
    "sampler": "sampler",
}
"""Top-level tables with exactly one component, and the kinds of these components."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A validated configuration."""

    config: RunConfig
    options: Mapping[str, BaseModel | None]
    """The validated model of each component's table; None for a component that takes no options. The key of a
    component within another table is its dotted path, such as ``algorithm.loss``."""
    environments: tuple[ResolvedEnvironment, ...]
    """The environments with their data and rewards; empty without an environment."""
    reward_options: tuple[BaseModel | None, ...]
    """In the order of ``config.reward``. The rewards of several environments are in `environments`."""
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

        The id of a component within another table and the defaults that follow from it are written as comments unless a
        layer sets them, so that they are derived again when a later layer changes the id.
        """
        following: set[KeyPath] = set()
        for table, options in self.options.items():
            if "." in table:
                keys = () if options is None else type(options).model_fields
                following |= {(*table.split("."), key) for key in ("id", *keys)}
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
        tree["reward"] = _reward_tables(self.config.reward, self.reward_options)
        if not tree["reward"]:
            del tree["reward"]
        if isinstance(self.config.environment, list):
            tree["environment"] = [_environment_table(environment) for environment in self.environments]
            del tree["data"]
        elif not self.config.environment.id:
            del tree["environment"]
        for table, options in self.options.items():
            if table not in tree and table in COMPONENT_TABLES:
                continue
            if table == "engine":
                if values := _dump(options):
                    tree["rollout"][self.config.rollout.engine] = values
            elif table == "sandbox":
                limits = {key: value for key, value in tree["sandbox"].items() if key in SandboxTable.model_fields}
                tree["sandbox"] = {**limits, **_dump(options)}
            elif table == "builder":
                tree["model"]["builder"] = _dump(options)
            elif "." in table:
                outer, key = table.split(".")
                tree[outer][key] = {"id": tree[outer][key]["id"], **_dump(options)}
            elif table in COMPONENT_TABLES or table == "data":
                id = tree[table].get("id") or next((environment.id for environment in self.environments), "")
                own = tree[table] if options is None else _dump(options)
                tree[table] = {**own, "id": id} if "id" in own else {"id": id, **own}
            else:
                tree[table] = _dump(options)
        return tree


def _environment_table(environment: ResolvedEnvironment) -> dict[str, Any]:
    assert environment.table is not None
    weight = environment.table.model_dump(mode="json")["weight"]
    return {
        "id": environment.id,
        "name": environment.name,
        "weight": weight,
        **_without_id(_dump(environment.options)),
        "data": {"id": environment.data_id, **_without_id(_dump(environment.data))},
        "reward": _reward_tables(environment.rewards, environment.reward_options),
    }


def _reward_tables(tables: Sequence[RewardTable], options: Sequence[BaseModel | None]) -> list[dict[str, Any]]:
    return [{"id": table.id, "weight": table.weight, **_dump(own)} for table, own in zip(tables, options, strict=True)]


def _without_id(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "id"}


def _dump(options: BaseModel | None) -> dict[str, Any]:
    return options.model_dump(mode="json") if options is not None else {}
