"""The conformance checks for plugins: specs, recipes, environments and rewards."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from rlcore.abilities import DemonstrationDataset
from rlcore.config.layers import Layer, file_layer
from rlcore.config.merge import SHARED
from rlcore.config.requirements import unmet
from rlcore.config.resolve import resolve
from rlcore.config.schema import EnvironmentTable
from rlcore.episodes.rewards import SelectedReward
from rlcore.errors import DataError, RlcoreError
from rlcore.plugins.forms import wrong_fields
from rlcore.plugins.installed import Offer
from rlcore.plugins.loading import HEAVY, load_attribute
from rlcore.plugins.registry import KINDS, Registry, declared
from rlcore.session.datasets import checked_dataset
from rlcore.specs import AlgorithmSpec, ConfigAdapterSpec, DatasetSpec, TrainerSpec
from rlcore.testing.calling import Findings, component, select_reward
from rlcore.testing.environments import check_environment
from rlcore.testing.episodes import Oracle
from rlcore.testing.rewards import RewardCase, check_reward

FULL = ("rlcore-rollout", "rlcore-trainer")
"""The packages required to resolve a recipe."""


def check_plugin(
    name: str,
    *,
    cases: Mapping[str, Sequence[RewardCase]] | None = None,
    oracles: Mapping[str, Oracle] | None = None,
) -> None:
    """Raise an `AssertionError` that lists every contract violation of an installed plugin.

    The checks cover:

    - The plugin loads without heavy imports.
    - Its specs have fields of the declared types, can be imported, and their models reject unknown keys.
    - An environment has a recipe ``NAME/default``.
    - Recipes resolve. Without rlcore-rollout and rlcore-trainer, only the parts that do not need them are resolved.
    - The dataset of each environment returns valid tasks and demonstrations.
    - Each environment passes `check_environment`, with the tables of its recipe.
    - Each reward passes `check_reward`.

    Args:
        name: the plugin, as shown by ``rlcore plugins list``.
        cases: right and wrong answers by reward id, for `check_reward`.
        oracles: oracles by environment id, for environments without an ``oracle`` attribute.
    """
    findings = Findings(f"The plugin {name}")
    registry = Registry()
    plugin = registry.plugin(name)
    _imports_lightly(plugin.module, findings)
    for complaint in plugin.complaints:
        findings.expect(False, complaint.problem)
    offers = [
        (kind, offer)
        for kind in KINDS
        for offer in registry.offers(kind)
        if (offer.plugin.name, offer.plugin.distribution) == (plugin.name, plugin.distribution)
    ]
    findings.expect(bool(offers), "its hooks return no specs")
    for kind, offer in offers:
        _spec_is_sound(registry, kind, offer, findings)
    environments = [offer.spec.id for kind, offer in offers if kind == "environment"]
    recipes = dict(_recipes(registry, offers, findings))
    findings.expect(
        not environments or f"{plugin.name}/default" in recipes,
        f"the recipe {plugin.name}/default is missing: rlcore run --plugin {plugin.name} needs it",
    )
    for id, layer in recipes.items():
        _recipe_resolves(registry, id, layer, findings)
    for id in environments:
        trees = [tree for layer in recipes.values() for tree in _separated(layer.tree)]
        trees = [tree for tree in trees if tree.get("environment", {}).get("id") == id]
        with _collected(findings):
            _environment(registry, id, trees[0] if trees else {}, (oracles or {}).get(id))
    for id in [offer.spec.id for kind, offer in offers if kind == "reward"]:
        with _collected(findings):
            check_reward(id, (cases or {}).get(id, ()))
    for id in cases or {}:
        with _collected(findings):
            assert any(kind == "reward" and offer.spec.id == id for kind, offer in offers), f"it has no reward {id!r}"
    findings.conclude()


def _imports_lightly(module: str, findings: Findings) -> None:
    """Import the module of the hooks in a separate interpreter."""
    module = module.partition(":")[0]
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    if findings.expect(done.returncode == 0, f"{module} cannot be imported on its own: {done.stderr.strip()[-500:]}"):
        heavy = done.stdout.strip().splitlines()[-1]
        findings.expect(heavy == "[]", f"{module} imports {heavy}: hooks must not need heavy imports")


def _spec_is_sound(registry: Registry, kind: str, offer: Offer, findings: Findings) -> None:
    spec, what = offer.spec, f"{kind.replace('_', ' ')} {offer.spec.id!r}"
    word = r"[a-z0-9][a-z0-9.-]*"
    pattern = {"recipe": rf"{word}(/{word})?", "command": rf"(serve )?{word}"}.get(kind, word)
    findings.expect(re.fullmatch(pattern, spec.id) is not None, f"the id of the {what} is not kebab-case")
    findings.expect(bool(spec.summary) or isinstance(spec, AlgorithmSpec), f"the {what} has no summary")
    for wrong in wrong_fields(spec):
        findings.expect(False, f"a field of the {what} has the wrong type: {wrong}")
    try:
        target = registry.load(kind, spec.id)
        callable_kind = kind not in ("recipe", "config_adapter")
        findings.expect(not callable_kind or callable(target), f"the target of the {what} cannot be called")
        if isinstance(spec, ConfigAdapterSpec):
            _adapter_reads_what_its_spec_says(spec, target, what, findings)
        if (model := registry.config_model(kind, spec.id)) is not None:
            _model_is_strict(model, spec.config or spec.target, findings)
        models: dict[str, str | None] = {}
        if isinstance(spec, DatasetSpec):
            models |= {"prepare_config": spec.prepare_config, "label_config": spec.label_config}
            for function in filter(None, (spec.prepare, spec.label)):
                load_attribute(function)
        if isinstance(spec, TrainerSpec):
            models |= dict(spec.tables)
        for path in filter(None, models.values()):
            _model_is_strict(load_attribute(path), path, findings)
    except RlcoreError as error:
        findings.expect(False, f"the {what} cannot be loaded: {error}")


def _adapter_reads_what_its_spec_says(spec: ConfigAdapterSpec, target: object, what: str, findings: Findings) -> None:
    findings.expect(spec.overrides or bool(spec.files), f"the {what} reads neither overrides nor files")
    wanted = {"overrides": ("keys", "claims", "read_overrides"), "files": ("read_file",)}
    for field, names in wanted.items():
        lacking = [name for name in names if getattr(spec, field) and not hasattr(target, name)]
        findings.expect(not lacking, f"the {what} is declared to read {field}, but has no {', '.join(lacking)}")


def _model_is_strict(model: type[BaseModel], path: str, findings: Findings) -> None:
    """Check that an unknown key is an error, regardless of other missing keys."""
    try:
        model.model_validate({"no_such_key_anywhere": 1})
        kinds = set()
    except ValidationError as error:
        kinds = {detail["type"] for detail in error.errors()}
    findings.expect(
        "extra_forbidden" in kinds, f'{path} accepts unknown keys: set model_config = ConfigDict(extra="forbid")'
    )


def _recipes(
    registry: Registry, offers: Iterable[tuple[str, Offer]], findings: Findings
) -> Iterator[tuple[str, Layer]]:
    """Yield the ids and contents of the plugin's recipes, the default one first."""
    ids = [offer.spec.id for kind, offer in offers if kind == "recipe"]
    for id in sorted(ids, key=lambda id: (not id.endswith("/default"), id)):
        try:
            file = registry.load("recipe", id)
            yield id, file_layer(PurePath(file.name), text=file.read_text(encoding="utf-8"), name=id)  # type: ignore[arg-type]
        except RlcoreError as error:
            findings.expect(False, f"the recipe {id!r} cannot be read: {error}")


def _recipe_resolves(registry: Registry, id: str, layer: Layer, findings: Findings) -> None:
    """Resolve as a run would. Without the packages of a run, resolve only the tables of the plugin's components."""
    try:
        if all(_is_installed(distribution) for distribution in FULL):
            resolve([layer], registry, recipe=id)
        elif "environment" in layer.tree:
            for tree in _separated(layer.tree):
                _tables(registry, tree)
        else:  # supervised training
            _dataset(registry, layer.tree)
    except (RlcoreError, ValidationError) as error:
        findings.expect(False, f"the recipe {id!r} does not resolve: {error}")


def _separated(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The recipe, or for several environments a recipe with the tables of each."""
    tables = tree.get("environment")
    if not isinstance(tables, list):
        yield tree
        return
    for table in tables:
        own = {key: table[key] for key in SHARED if key in table}
        options = {
            key: value for key, value in table.items() if key == "id" or key not in EnvironmentTable.model_fields
        }
        yield {**tree, "data": {}, **own, "environment": options}


def _tables(
    registry: Registry, tree: Mapping[str, Any]
) -> tuple[Callable[[], Any], Callable[[], Any], list[SelectedReward]]:
    """Return what a recipe's environment, data and reward tables create."""
    environment, environment_id = _without_id(tree["environment"])
    rewards = []
    known = {spec.id for spec in registry.specs("reward")}
    lacking = not all(_is_installed(distribution) for distribution in FULL)
    for table in tree.get("reward", ()):
        options, reward_id = _without_id(table)
        if lacking and ":" not in str(reward_id) and reward_id not in known:
            continue  # a reward of a package that is required to run the recipe
        if options.pop("weight", 1.0) > 0:
            rewards.append(select_reward(str(reward_id), options))
    make_environment = component(registry, "environment", str(environment_id), environment)
    return make_environment, _dataset(registry, tree, make_environment), rewards


def _dataset(
    registry: Registry, tree: Mapping[str, Any], make_environment: Callable[[], Any] | None = None
) -> Callable[[], Any]:
    data, id = _without_id(tree.get("data", {}))
    id = str(id or tree["environment"].get("id"))
    keywords = declared(registry.load("dataset", id), environment=make_environment)
    return component(registry, "dataset", id, data, **keywords)


def _environment(registry: Registry, id: str, tree: Mapping[str, Any], oracle: Oracle | None) -> None:
    tables = tree or {"environment": {"id": id}}
    _, dataset, rewards = _tables(registry, tables)
    rows = checked_dataset(dataset(), f"the dataset of {id!r}")
    if isinstance(rows, DemonstrationDataset):
        with suppress(DataError):  # it has none
            list(islice(rows.demonstrations(2, seed=0), 2))
    tasks = [rows.tasks(split)[:3] for split in ("evaluation", "train")][-1]
    options, _ = _without_id(tables["environment"])
    check_environment(id, options=options, tasks=tasks, rewards=rewards, oracle=oracle)


def _without_id(table: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    return {key: value for key, value in table.items() if key != "id"}, table.get("id")


def _is_installed(distribution: str) -> bool:
    return unmet(distribution) is None


@contextmanager
def _collected(findings: Findings) -> Iterator[None]:
    """Convert exceptions raised by a check into findings."""
    try:
        yield
    except (AssertionError, RlcoreError, ValidationError) as error:
        findings.expect(False, str(error).replace("\n", "\n    "))
