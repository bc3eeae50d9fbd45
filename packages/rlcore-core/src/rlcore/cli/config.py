"""``rlcore config``: show, document and compare configurations."""

from __future__ import annotations

import textwrap
import types
import typing
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from rlcore.cli.layering import gather, layer_options
from rlcore.cli.output import json_option, print_json
from rlcore.config.fields import inner_models
from rlcore.config.layers import file_layer, leaves
from rlcore.config.merge import merge_layers
from rlcore.config.resolve import resolve
from rlcore.config.resolved import Resolved
from rlcore.config.schema import RunConfig
from rlcore.config.write import toml_text, toml_value
from rlcore.console.terminal import say
from rlcore.errors import UserError
from rlcore.plugins.registry import Registry
from rlcore.redaction import redacted
from rlcore.runs.directory import run_of


@click.group(
    short_help="Show, explain and compare configurations.",
    epilog="""\b
    Examples:
      rlcore config show -p gsm8k-tools --origin
      rlcore config schema -p gsm8k-tools
      rlcore config diff runs/A runs/B""",
)
def config() -> None:
    """Show, explain and compare configurations."""


@config.command(epilog="\b\nExample:\n  rlcore config show -p gsm8k-tools rollout.group_size=4 --origin")
@layer_options
@click.option("--origin", is_flag=True, help="Show the origin of each value.")
@json_option("Print JSON instead of TOML.")
def show(
    plugin: str | None,
    recipe: str | None,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    origin: bool,
    as_json: bool,
) -> None:
    """Print the complete configuration of a run. The output is a valid recipe."""
    registry = Registry()
    layered = gather(registry, plugin=plugin, recipe=recipe, files=files, overrides=overrides)
    resolved = resolve(layered.layers, registry, recipe=layered.recipe)
    tree = resolved.tree()
    if as_json:
        shown = {".".join(path): value for path, value in leaves(tree)}
        rows = {key: {"value": value, "origin": resolved.origin(tuple(key.split(".")))} for key, value in shown.items()}
        print_json(rows if origin else shown, indent=2)
    else:
        say(*toml_text(tree, resolved.origin if origin else None).splitlines())


@config.command(epilog="\b\nExamples:\n  rlcore config schema\n  rlcore config schema -p gsm8k-tools --json")
@click.option("-p", "--plugin", metavar="PLUGIN", help="Include the tables of the plugin's default recipe.")
@click.option("-r", "--recipe", metavar="NAME|FILE", help="Use another recipe.")
@json_option("Print a JSON schema, for editors.")
def schema(plugin: str | None, recipe: str | None, as_json: bool) -> None:
    """Print all configuration keys with type, default and description."""
    registry = Registry()
    tables: dict[str, type[BaseModel]] = {}
    if plugin is not None or recipe is not None:
        layered = gather(registry, plugin=plugin, recipe=recipe)
        tables = _tables_of(resolve(layered.layers, registry, recipe=layered.recipe))
    if as_json:
        print_json(json_schema(tables), indent=2)
        return
    say(*field_rows(RunConfig, "", skip=set(tables)))
    for name, model in tables.items():
        say(*field_rows(model, name + ".", skip={f"{name}.id"}))


@config.command(epilog="\b\nExample:\n  rlcore config diff runs/A runs/B")
@click.argument("first", metavar="RUN_A")
@click.argument("second", metavar="RUN_B")
def diff(first: str, second: str) -> None:
    """Show the differences between two runs or configuration files."""
    before, after = _values(first), _values(second)
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    width = max((len(key) for key in changed), default=0)
    for key in changed:
        old, new = (toml_value(side[key]) if key in side else "(not set)" for side in (before, after))
        say(f"{key:<{width}}  {old} → {new}")
    if not changed:
        say("no differences")


def _values(source: str) -> dict[str, Any]:
    path = Path(source).expanduser()
    if path.is_dir():
        found = run_of(path)
        if found is None:
            raise UserError(f"{source} is not a run directory", fix="give a run directory or a configuration file")
        path = found[0] / "config.toml"
    return {".".join(key): value for key, value in leaves(redacted(merge_layers([file_layer(path)]).tree))}


def _tables_of(resolved: Resolved) -> dict[str, type[BaseModel]]:
    tables = {}
    for name, options in resolved.options.items():
        if options is not None:
            place = {"engine": f"rollout.{resolved.config.rollout.engine}", "builder": "model.builder"}.get(name, name)
            tables[place] = type(options)
    for environment in resolved.environments:
        for table, options in zip(environment.rewards, environment.reward_options, strict=True):
            if options is not None:
                tables[".".join((*environment.at("reward"), table.id))] = type(options)
        if environment.path:
            parts = {environment.at("environment"): environment.options, environment.at("data"): environment.data}
            tables |= {".".join(path): type(options) for path, options in parts.items() if options is not None}
    return tables


def json_schema(tables: dict[str, type[BaseModel]]) -> dict[str, Any]:
    """The schema of `RunConfig`, with the keys of components in their tables."""
    tree = RunConfig.model_json_schema()
    definitions = tree.setdefault("$defs", {})
    for name, model in tables.items():
        inner = model.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        for key, value in inner.pop("$defs", {}).items():
            definitions[f"{name}.{key}"] = value
        definitions[name] = inner
        outer, _, rest = name.partition(".")
        if not rest:
            known = tree["properties"].get(outer, {})
            tree["properties"][outer] = {**{"description": known.get("description", "")}, "$ref": f"#/$defs/{name}"}
            inner.setdefault("properties", {}).setdefault("id", {"type": "string"})
    return tree


def field_rows(
    model: type[BaseModel], prefix: str, *, values: BaseModel | None = None, skip: Collection[str] = ()
) -> Iterator[str]:
    """Name, type and default of each key, followed by its docstring. ``values`` overrides the defaults of the model."""
    for name, field in model.model_fields.items():
        inner = list(inner_models(field.annotation))
        default = getattr(values, name) if values is not None else field.get_default(call_default_factory=True)
        if not inner and prefix + name in skip:
            continue
        for table, place in inner:
            table_default = default if isinstance(default, table) else None
            yield from field_rows(table, f"{prefix}{name}.{'N.' if place else ''}", values=table_default, skip=skip)
        if inner:
            continue
        shown = f"{prefix}{name}: {_type_name(field.annotation)}"
        if default is PydanticUndefined:
            shown += "   (required)"
        elif default is not None:
            shown += f" = {toml_value(default)}"
        yield shown
        if field.description:
            yield from textwrap.wrap(field.description, 100, initial_indent="    ", subsequent_indent="    ")


def _type_name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type_name(arguments[0])
    if origin in {typing.Union, types.UnionType}:
        return " | ".join(_type_name(argument) for argument in arguments)
    if origin is typing.Literal:
        return " | ".join(toml_value(argument) for argument in arguments)
    if origin is not None and arguments:
        return f"{_type_name(origin)}[{', '.join(_type_name(a) for a in arguments if a is not Ellipsis)}]"
    return {"NoneType": "null", "str": "string", "Path": "path"}.get(_name(annotation), _name(annotation))


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
