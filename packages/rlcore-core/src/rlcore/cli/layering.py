"""The options that ``run``, ``eval`` and ``config`` share, and the layers that they stand for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from rlcore.config.foreign_files import read_files
from rlcore.config.layers import Layer, file_layer, override_layers
from rlcore.config.verl import VERL
from rlcore.config.vocabulary import read_words
from rlcore.errors import UserError
from rlcore.processes import speaks_first
from rlcore.registry import KINDS, Registry
from rlcore.run_directory import Asked

Command = TypeVar("Command", bound=Callable[..., Any])


def layer_options(command: Command) -> Command:
    """``-p PLUGIN -r RECIPE -c FILE… KEY=VALUE…``."""
    command = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")(command)
    command = click.option(
        "-c", "--config", "files", multiple=True, metavar="FILE", help="TOML or YAML on top of the recipe; repeatable."
    )(command)
    command = click.option(
        "-r", "--recipe", metavar="NAME|FILE", help="A recipe of the plugin (default: default), or a file."
    )(command)
    return click.option("-p", "--plugin", metavar="PLUGIN", help="The plugin whose recipe is the base.")(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered:
    """What was asked, as layers."""

    layers: list[Layer]
    recipe: str
    """Id or file, empty when there is none."""
    summary: str
    """Who brings the recipe, for the first line of a run."""
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
) -> Layered:
    """Recipe (or ``base``, the configuration of an earlier run), files and overrides, in this order.

    For each override or key of a file in the words of another system a line on stderr says what it is here; a recipe
    that is a file is read as any other file.

    Raises:
        UserError: there is no such plugin, recipe or file; nothing names what to do.
    """
    layers: list[Layer] = []
    name, summary, read = base_recipe, "", tuple(files)
    if base is not None and plugin is None and recipe is None:
        layers.append(base)
    elif plugin is None and recipe is None and not files and not _names_a_trainer(overrides):
        mend = "name a plugin: --plugin NAME; or give a file: -c FILE; or say it all: trainer.id=ID model=FOLDER …"
        raise UserError("nothing says what to do", found=_installed(registry), mend=mend)
    elif recipe is not None and recipe.endswith((".toml", ".yaml", ".yml")):
        if plugin is not None:
            registry.plugin(plugin)
        name, read = recipe, (recipe, *files)
    elif plugin is not None or recipe is not None:
        layer, name, summary = _recipe(registry, plugin, recipe)
        layers.append(layer)
    reading = read_words(overrides, VERL)
    given = read_files(read, reading.own)
    for line in (*given.lines, *reading.lines) if speaks_first() else ():
        click.echo(line, err=True)
    layers += [*given.layers, reading.layer, *override_layers(reading.own)]
    asked = Asked(recipe=name, files=tuple(files), overrides=tuple(overrides), argv=tuple(sys.argv))
    return Layered(layers=layers, recipe=name, summary=summary, asked=asked)


def _names_a_trainer(overrides: Sequence[str]) -> bool:
    return any(text.partition("=")[0].strip() in ("trainer", "trainer.id") for text in overrides)


def _recipe(registry: Registry, plugin: str | None, recipe: str | None) -> tuple[Layer, str, str]:
    if plugin is None:
        if recipe is None or "/" not in recipe:
            mend = "name the plugin too: -p PLUGIN -r NAME, or -r PLUGIN/NAME, or -r FILE.toml"
            raise UserError(f"whose recipe is {recipe!r}?", mend=mend)
        id = recipe
    else:
        _check_brings_recipes(registry, plugin)
        id = f"{registry.plugin(plugin).name}/{(recipe or 'default').rpartition('/')[2]}"
    offer = registry.offer("recipe", id)
    origin = offer.plugin.origin if offer is not None else ""
    text = registry.load("recipe", id).read_text(encoding="utf-8")
    return file_layer(Path(f"{id}.toml"), text=text, name=f"recipe {id}"), id, origin


def _check_brings_recipes(registry: Registry, name: str) -> None:
    """Say what a plugin without recipes brings instead, and how that is used."""
    plugin = registry.plugin(name)
    brings = {
        kind: [offer.spec.id for offer in registry.offers(kind) if offer.plugin.name == plugin.name] for kind in KINDS
    }
    kinds = [kind for kind, ids in brings.items() if ids]
    if not kinds or brings["recipe"]:
        return
    found = "it brings " + "; ".join(f"{kind.replace('_', ' ')}: {', '.join(brings[kind])}" for kind in kinds)
    mend = "name a plugin with a recipe, and use an id of this one in it"
    if brings["reward"]:
        id = plugin.name if plugin.name in brings["reward"] else brings["reward"][0]
        mend += f": rlcore run -p PLUGIN reward.0.id={id}"
    raise UserError(f"the plugin {plugin.name!r} has no recipe to run", found=found, where=plugin.origin, mend=mend)


def _installed(registry: Registry) -> str:
    names = [spec.id.removesuffix("/default") for spec in registry.specs("recipe") if spec.id.endswith("/default")]
    return f"plugins with a default recipe: {', '.join(names)}" if names else "no installed plugin has a default recipe"
