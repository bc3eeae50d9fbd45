"""What a command line or a call of Python requests: its layers, and the run that they define, checked."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from rlcore.cli.output import printable
from rlcore.config.adapters import translate
from rlcore.config.layers import COMMAND_LINE, Layer, leaves, override_layers, override_of, recipe_layer
from rlcore.config.merge import merge_layers
from rlcore.config.resolve import resolve
from rlcore.console.terminal import say
from rlcore.errors import UserError
from rlcore.models.folder import BUILTIN
from rlcore.plugins.registry import KINDS, Registry
from rlcore.redaction import remember_arguments
from rlcore.runs.checkpoint_folder import check_checkpoint, check_kept_model, has_manifest, kept_models
from rlcore.runs.directory import Asked, RunDirectory, asked_of, check_name, checkpoint_to_resume, config_layer
from rlcore.session.checks import check_run
from rlcore.session.exits import STOPS
from rlcore.session.plan import RunPlan
from rlcore.session.processes import rank, speaks_first
from rlcore.session.resuming import check_unchanged
from rlcore.session.session import RunSession

Command = TypeVar("Command", bound=Callable[..., Any])
SELECTING = frozenset(
    {
        "id",
        "engine",
        "use",
        "observers",
        "diagnosis",
        "tools",
        "chat_format",
        "tool_parser",
        "advantage",
        "loss",
        "make",
    }
)
"""Keys whose values select components, by id or by import path; ``make`` is an id for ``gymnasium.make``."""
_FILE = re.compile(r".+\.py:[^\W\d][\w.]*")
_MODULE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w./-]*")


def layer_options(command: Command) -> Command:
    """``-p PLUGIN -r RECIPE -c FILE… KEY=VALUE…``."""
    command = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")(command)
    command = click.option(
        "-c",
        "--config",
        "files",
        multiple=True,
        metavar="FILE",
        help="TOML or YAML file that overrides the recipe; repeatable.",
    )(command)
    command = click.option(
        "-r", "--recipe", metavar="NAME|FILE", help="Recipe of the plugin (default: default), or a file."
    )(command)
    return click.option("-p", "--plugin", metavar="PLUGIN", help="Plugin that provides the recipe.")(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """The requested configuration as layers."""

    layers: list[Layer]
    recipe: str
    """Id or file; empty without a recipe."""
    summary: str
    """The plugin that provides the recipe, for the first line of a run."""
    asked: Asked


def gather(
    registry: Registry,
    *,
    plugin: str | None = None,
    recipe: str | None = None,
    files: Sequence[str] = (),
    overrides: Sequence[str] = (),
    base: Layer | None = None,
    base_recipe: str = "",
    place: str = COMMAND_LINE,
    argv: Sequence[str] | None = None,
) -> Layered:
    """Collect layers: recipe (or ``base``, the configuration of an earlier run), files and overrides, in this order.

    Prints the translation of each key of another system to stderr. A recipe that is a file is read like any other file.
    ``place`` tells where the overrides come from, and ``argv`` is recorded as the command; by default, that of this
    process.

    Raises:
        UserError: the plugin, recipe or file does not exist, or none is given.
    """
    layers: list[Layer] = []
    name, summary, read = base_recipe, "", tuple(files)
    if base is not None and plugin is None and recipe is None:
        layers.append(base)
    elif recipe is not None and recipe.endswith((".toml", ".yaml", ".yml")):
        if plugin is not None:
            registry.plugin(plugin)
        name, read = recipe, (recipe, *files)
    elif plugin is not None or recipe is not None:
        layer, name, summary = _recipe(registry, plugin, recipe)
        layers.append(layer)
    remember_arguments(overrides)  # a config adapter may repeat them
    translated = translate(registry, files=read, overrides=overrides)
    is_empty = base is None and plugin is None and recipe is None and not files
    if is_empty and not _names_a_trainer([*translated.overrides, *override_layers(translated.own, place)]):
        fix = "give a plugin: --plugin NAME; or a file: -c FILE; or all settings: trainer.id=ID model=FOLDER …"
        raise UserError("no plugin, recipe or file is given", found=_installed(registry), fix=fix)
    if speaks_first():
        say(*translated.lines, err=True)
    layers += [*translated.files, *(_placed(layer, place) for layer in translated.overrides)]
    layers += override_layers(translated.own, place)
    if base is not None and layers[0] is base:
        layers = _without_former_strategy(registry, layers)
    if name and base is None:
        layers = _without_warmup(layers)
    if speaks_first():
        say(*import_lines(layers), err=True)
    asked = Asked(recipe=name, files=tuple(files), overrides=tuple(overrides), argv=tuple(argv or sys.argv))
    return Layered(layers=layers, recipe=name, summary=summary, asked=asked)


def _placed(layer: Layer, place: str) -> Layer:
    """The layer of a config adapter, with the place that its overrides come from; its origins name the command line."""

    def placed(origin: str) -> str:
        before, text = override_of(origin)
        return f"{place}{text}" if before else origin

    problems = tuple(replace(problem, origin=placed(problem.origin)) for problem in layer.problems)
    return replace(layer, origins={path: placed(one) for path, one in layer.origins.items()}, problems=problems)


def _without_former_strategy(registry: Registry, layers: Sequence[Layer]) -> list[Layer]:
    """Drop the keys of an earlier run's strategy that a later layer replaces, unless the new one has them, too."""
    base, *others = layers
    before, now = base.tree.get("strategy"), merge_layers(others).tree.get("strategy")
    id = now.get("id") if isinstance(now, dict) else None
    if not isinstance(before, dict) or not isinstance(id, str) or id == before.get("id"):
        return list(layers)
    with suppress(UserError):  # an unknown strategy is reported with the other problems
        model = registry.config_model("strategy", id)
        kept = {"id", *(model.model_fields if model is not None else ())}
        tree = {**base.tree, "strategy": {key: value for key, value in before.items() if key in kept}}
        return [replace(base, tree=tree), *others]
    return list(layers)


def _without_warmup(layers: Sequence[Layer]) -> list[Layer]:
    """Disable the warm-up of a recipe for a model that a later layer gives, unless such a layer asks for one.

    A recipe warms up the model that it names, which may be untrained. A given model is trained as it is.
    """
    if not layers:
        return []
    recipe, *others = layers
    model = merge_layers(others).tree.get("model")
    path = model.get("path") if isinstance(model, dict) else None
    if "warmup" not in recipe.tree or not isinstance(path, str) or path.startswith(BUILTIN):
        return list(layers)
    reason = "the model is given and trained as it is; set warmup.steps to warm it up"
    disabled = Layer(tree={"warmup": {"steps": 0}}, origins={("warmup", "steps"): reason})
    return [recipe, disabled, *others]


def import_lines(layers: Sequence[Layer]) -> list[str]:
    """A line for each import path that the layers select, before its code runs."""
    merged = merge_layers(layers)
    lines = []
    for path, value in leaves(merged.tree):
        selects = any(part in SELECTING for part in path[-2:])
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and (_FILE.fullmatch(name) or (selects and _MODULE.fullmatch(name))):
                lines.append(f"imports   {printable(name)} for {'.'.join(path)}, from {merged.origin(path)}")
    return lines


def _names_a_trainer(layers: Sequence[Layer]) -> bool:
    trainers = [layer.tree.get("trainer") for layer in layers]
    return any("id" in one if isinstance(one, dict) else one is not None for one in trainers)


def _recipe(registry: Registry, plugin: str | None, recipe: str | None) -> tuple[Layer, str, str]:
    if plugin is None:
        if recipe is None or "/" not in recipe:
            fix = "give the plugin too: -p PLUGIN -r NAME, or -r PLUGIN/NAME, or -r FILE.toml"
            raise UserError(f"the recipe {recipe!r} needs a plugin", fix=fix)
        id = recipe
    else:
        _check_has_recipes(registry, plugin)
        id = f"{registry.plugin(plugin).name}/{(recipe or 'default').rpartition('/')[2]}"
    offer = registry.offer("recipe", id)
    return recipe_layer(registry, id), id, offer.plugin.origin if offer is not None else ""


def _check_has_recipes(registry: Registry, name: str) -> None:
    """Reject a plugin without recipes, and explain how to use its components."""
    plugin = registry.plugin(name)
    provides = {
        kind: [offer.spec.id for offer in registry.offers(kind) if offer.plugin.name == plugin.name] for kind in KINDS
    }
    kinds = [kind for kind, ids in provides.items() if ids]
    if not kinds or provides["recipe"]:
        return
    found = "it provides " + "; ".join(f"{kind.replace('_', ' ')}: {', '.join(provides[kind])}" for kind in kinds)
    fix = "run a plugin with a recipe, and select a component of this one by id"
    if provides["reward"]:
        id = plugin.name if plugin.name in provides["reward"] else provides["reward"][0]
        fix += f": rlcore run -p PLUGIN reward.0.id={id}"
    raise UserError(f"the plugin {plugin.name!r} has no recipe to run", found=found, where=plugin.origin, fix=fix)


def _installed(registry: Registry) -> str:
    names = [spec.id.removesuffix("/default") for spec in registry.specs("recipe") if spec.id.endswith("/default")]
    return f"plugins with a default recipe: {', '.join(names)}" if names else "no installed plugin has a default recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A requested run, from the command line or from Python."""

    plugin: str | None = None
    recipe: str | None = None
    files: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    resume: Path | None = None
    """A run to resume, or a checkpoint of it."""
    place: str = COMMAND_LINE
    """Where the overrides come from."""
    argv: tuple[str, ...] = ()
    """The command to record."""
    stops: tuple[signal.Signals, ...] = STOPS
    """The signals that stop the run after a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checked run that has not started."""

    request: Request
    layered: Layered
    trial: RunSession
    """A session without a directory, whose components were checked."""
    notes: list[str]
    folder: Path | None
    """The run to resume; None for a new run."""
    directory: RunDirectory | None
    """The locked directory of the run to resume, in the main process."""


@contextmanager
def prepared(request: Request, *, locks: bool = True) -> Iterator[Prepared]:
    """Resolve and check a requested run. A run to resume is locked inside the block, if ``locks`` is set.

    Raises:
        UserError: the request cannot be run.
    """
    registry, directory = Registry(), None
    folder, checkpoint = checkpoint_to_resume(request.resume) if request.resume is not None else (None, None)
    with ExitStack() as stack:
        if request.resume is not None and folder is not None and locks and rank() == 0:
            directory = RunDirectory.open(folder)
            stack.callback(directory.close)
            folder, checkpoint = checkpoint_to_resume(request.resume)  # again, now that the run is locked
        if checkpoint is not None and has_manifest(checkpoint) and speaks_first():
            check_checkpoint(checkpoint)
            for model in kept_models(folder) if folder is not None else ():
                check_kept_model(model)
        base = config_layer(folder) if folder is not None else None
        layered = gather(
            registry,
            plugin=request.plugin,
            recipe=request.recipe,
            files=request.files,
            overrides=request.overrides,
            base=base,
            base_recipe=asked_of(folder).recipe if folder is not None else "",
            place=request.place,
            argv=request.argv,
        )
        resolved = resolve(layered.layers, registry, recipe=layered.recipe)
        if base is None:
            check_name(resolved)
        else:
            check_unchanged(base, resolved)
        trial = RunSession(RunPlan(resolved=resolved, resume_from=checkpoint), registry)
        yield Prepared(
            request=request,
            layered=layered,
            trial=trial,
            notes=check_run(trial),
            folder=folder,
            directory=directory,
        )
